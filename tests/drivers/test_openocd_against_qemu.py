# SPDX-License-Identifier: Apache-2.0
"""Our models behind the real OpenOCD agree with QEMU: an image gives the same bits and instruction counts."""

from pathlib import Path

import numpy as np
import pytest

from models.digits import quantize
from models.digits.data import held_out
from utvm import boards, firmware
from utvm.compiler import compile_model, load
from utvm.drivers import attach
from utvm.session import HostDriven


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "pynq-z1:memory=ocm",
        pytest.param("pynq-z1:memory=ddr", marks=pytest.mark.nightly),
        "riscv-spike:core=rv32",
        pytest.param("riscv-spike:core=rv64", marks=pytest.mark.nightly),
    ],
)
def test_network_equals_qemu_in_results_and_instructions(name: str, tmp_path: Path) -> None:
    results = {}
    for driver in ("jtag", "qemu"):
        board = boards.load(f"{name},driver={driver}")
        library = compile_model(load(quantize.MODEL), target=board.target)
        pictures = quantize.quantized_images(held_out()[0])[:10]
        image = firmware.build(board, [library])
        with attach(board, "virtual", log_directory=tmp_path) as connection, HostDriven(connection, image) as session:
            assert ("OpenOCD" in connection.capabilities) == (driver == "jtag")
            runs = [session.run(library.name, [picture[np.newaxis]]) for picture in pictures]
        results[driver] = (image.elf.read_bytes(), [(run.outputs[0].tobytes(), run.count) for run in runs])
    assert results["jtag"] == results["qemu"]
