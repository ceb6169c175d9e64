# SPDX-License-Identifier: Apache-2.0
"""Large arrays enter an image without passing through C text, and the image is the same to the byte."""

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from models.tflite_writer import Builder
from utvm import boards, firmware
from utvm.compiler import Library, compile_model, from_tflite
from utvm.compiler.c_files import CFiles
from utvm.compiler.library import from_json, to_json
from utvm.errors import ToolchainError
from utvm.runtime import Executor
from utvm.toolchain.object_file import fill


def _library() -> Library:
    """Compile two layers: weights of 8 bits and of floats, two of them alike in size and type."""
    random = np.random.default_rng(0)
    builder = Builder()
    for name in ("x", "a", "y"):
        builder.tensor(name, (1, 80), "float32")
    for number, (read, written) in enumerate((("x", "a"), ("a", "y"))):
        builder.tensor(f"w{number}", (80, 80), "float32", random.normal(0, 1, (80, 80)))
        builder.operator("FULLY_CONNECTED", [read, f"w{number}"], [written])
    builder.tensor("q", (1, 80), "int8", scale=0.1)
    builder.tensor("w", (80, 80), "int8", random.integers(-127, 128, (80, 80)), scale=0.01)
    builder.tensor("z", (1, 80), "int8", scale=0.2)
    builder.operator("FULLY_CONNECTED", ["q", "w"], ["z"])
    return compile_model(from_tflite(builder.finish(["x", "q"], ["y", "z"]), "large"))


def _loaded_sections(elf: Path) -> dict[str, bytes]:
    """Return the sections in the board's memory; debug information is left out."""
    with elf.open("rb") as file:
        sections = ELFFile(file).iter_sections()
        return {
            section.name: section.data()
            for section in sections
            if section["sh_flags"] & 2 and section.name != ".note.gnu.build-id"
        }


@pytest.mark.slow
@pytest.mark.parametrize(("board", "executor"), [("stm32f746", "host_driven"), ("host", "rpc")])
def test_image_equals_that_of_the_complete_text(board: str, executor: Executor) -> None:
    library = _library()
    assert isinstance(library.sources, CFiles)
    assert {array.nbytes for array in library.sources.arrays.values()} >= {4 * 6400}
    complete = replace(library, sources=dict(library.sources))
    assert len(library.sources.brief["large.c"]) < len(complete.sources["large.c"]) / 20
    images = [firmware.build(boards.load(board), [variant], executor) for variant in (library, complete)]
    brief, text = (_loaded_sections(image.elf) for image in images)
    assert images[0].digest != images[1].digest or brief == text
    assert brief == text and any(len(data) > 2 * 25600 for data in brief.values())


def test_cached_library_has_the_arrays() -> None:
    library = _library()
    again = from_json(to_json(library))
    assert again == library and again.digest == library.digest
    assert dict(again.sources) == dict(library.sources)


@pytest.mark.parametrize("afterwards", ["true", "strip"])
def test_object_without_the_constant_is_refused(afterwards: str, tmp_path: Path) -> None:
    path = tmp_path / "x.o"
    source = "const char weights[4] = {1, 2, 3, 4};\n"
    subprocess.run(["gcc", "-c", "-xc", "-", "-o", path], input=source, text=True, check=True)
    subprocess.run([afterwards, path], check=True)
    with pytest.raises(ToolchainError, match="created no constant weights of 3 bytes"):
        fill(path, {"weights": b"abc"})
