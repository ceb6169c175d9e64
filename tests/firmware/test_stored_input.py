# SPDX-License-Identifier: Apache-2.0
"""Firmware that stands alone: invalid requests, the origin of its bytes, and the size of the runtime."""

import dataclasses
import re
import subprocess

import numpy as np
import pytest

from hil_tests.programs import handwritten
from utvm import boards, firmware
from utvm.boards import Board
from utvm.compiler import Library, compile_model, load
from utvm.errors import ConfigError
from utvm.paths import ROOT

X = np.array([1, -2, 3, -4], np.int32)
_RUNTIME_LIMIT = 4096


def test_stored_inputs_are_in_flash(board: Board) -> None:
    adder = handwritten("adder", "  y[0] = x[0] + ((const int32_t *)inputs[1])[0];\n  return 0;", inputs=2)
    image = firmware.build(board, [adder], "standing_alone", [X, -X])
    address, contents = image.binary
    for array in (X, -X):
        place = address + contents.index(array.tobytes())
        assert image.region_of(place) == board.layout.code
        assert place % 16 == 0


def test_array_of_another_type_or_shape_is_refused(board: Board, doubler: Library) -> None:
    for wrong in ([X.astype(np.int64)], [X[:3]], [], [X, X]):
        with pytest.raises(ConfigError):
            firmware.build(board, [doubler], "standing_alone", wrong)


def test_image_has_one_model(board: Board, doubler: Library) -> None:
    other = dataclasses.replace(handwritten("other", "  return 0;"))
    with pytest.raises(ConfigError, match="runs one model"):
        firmware.build(board, [doubler, other], "standing_alone", [X])


def test_binary_equals_that_of_binutils(board: Board, doubler: Library) -> None:
    image = firmware.build(board, [doubler], "standing_alone", [X])
    copy = image.elf.with_name("copy.bin")
    subprocess.run(["arm-none-eabi-objcopy", "-O", "binary", image.elf, copy], check=True)
    golden = bytearray(copy.read_bytes())
    copy.unlink()
    start = board.region(board.layout.code).address
    # objcopy writes zeros into all gaps. A probe leaves the gaps between segments erased.
    command = ["arm-none-eabi-readelf", "-lW", image.elf]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^ +LOAD +\S+ +\S+ +(\S+) +(\S+)", output, re.M)
    segments = [range(address, address + size) for address, size in ((int(a, 16), int(b, 16)) for a, b in rows)]
    for place in range(start, start + len(golden)):
        if not any(place in segment for segment in segments):
            golden[place - start] = 0xFF
    assert image.binary == (start, bytes(golden))


# The memory of the second begins at address 0, which a linker's map also uses for discarded sections.
@pytest.mark.parametrize("name", ["stm32f746", "mps2-an500"])
def test_share_of_the_model_is_that_of_its_symbols(name: str) -> None:
    board = boards.load(name)
    weights = ", ".join(str(number) for number in range(100))
    library = handwritten(
        "heavy", "  y[0] = heavy_w[x[0] & 63];\n  return 0;", f"static const int32_t heavy_w[] = {{{weights}}};\n"
    )
    image = firmware.build(board, [library], "standing_alone", [X])
    output = subprocess.run(["arm-none-eabi-nm", "-S", image.elf], capture_output=True, text=True, check=True).stdout
    sizes = {name: int(size, 16) for size, name in re.findall(r"^\w+ (\w+) \w (heavy\w*|utvm_port_\w+)$", output, re.M)}
    assert {name for name in sizes if "port" not in name} == {"heavy_run", "heavy_w", "heavy_program", "heavy_outputs"}
    shares = image.shares
    assert shares.model == sizes["heavy_run"] + sizes["heavy_w"]
    assert shares.stored == X.nbytes
    assert shares.model + shares.stored + shares.board + shares.runtime == image.flash_bytes
    port = sum(size for name, size in sizes.items() if name.startswith("utvm_port_"))
    assert shares.board >= port + 4 * (16 + board.interrupts) > 4 * (16 + board.interrupts)


def test_runtime_is_under_4_kib(board: Board) -> None:
    model = load(ROOT / "models" / "digits" / "digits_int8.tflite")
    library = compile_model(model, target=board.target)
    image = firmware.build(board, [library], "standing_alone", [np.zeros((1, 8, 8, 1), np.int8)])
    assert 0 < image.shares.runtime + image.shares.board < _RUNTIME_LIMIT, image.shares
