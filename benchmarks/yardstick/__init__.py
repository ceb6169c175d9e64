# SPDX-License-Identifier: Apache-2.0
"""The yardstick: a library on the emulated MPS2 AN500 (Cortex-M7), with every instruction counted.

QEMU's ``-icount shift=5`` gives each instruction 32 ns, and the board's timer ticks every 40 ns: a difference of two
readings, times 40 / 32, is the number of instructions between them, to the granularity of one tick.
"""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt
from elftools.elf.elffile import ELFFile

from utvm.compiler import Library
from utvm.toolchain.compiler import Toolchain

_HERE = Path(__file__).parent
_CPU = "cortex-m7-fpv5-sp"
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Run:
    """One inference: outputs in the library's order, and instructions."""

    outputs: list[npt.NDArray[Any]]
    instructions: int


@dataclass(frozen=True)
class Measurement:
    """A library's figures on the yardstick.

    Attributes:
        runs: one for each sample.
        code_bytes: machine code of the library, with the parts of the C library that it pulls in.
        constant_bytes: its constants, with the weights.
    """

    runs: list[Run]
    code_bytes: int
    constant_bytes: int


def run(library: Library, samples: Sequence[Sequence[npt.NDArray[Any]]]) -> Measurement:
    """Run a library on some inputs.

    Args:
        samples: for each run, the inputs in the library's order.
    """
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        elf = _build(library, samples, work)
        runs = _parse(library, _emulate(elf), len(samples))
        code, constants = _sizes(library, elf)
    return Measurement(runs, code, constants)


def _build(library: Library, samples: Sequence[Sequence[npt.NDArray[Any]]], work: Path) -> Path:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), trim_blocks=True, undefined=jinja2.StrictUndefined
    )
    values = [
        [", ".join(map(str, sample[number].tobytes())) for sample in samples] for number in range(len(library.inputs))
    ]
    (work / "case.c").write_text(environment.get_template("case.c.j2").render(library=library, samples=values))
    (work / "case.h").write_text((_HERE / "case.h").read_text())
    for name, text in library.sources.items():
        (work / name).write_text(text)
    elf = work / "yardstick.elf"
    with Toolchain("arm-none-eabi").compile_objects(
        work,
        [_HERE / "main.c", *sorted(work.glob("*.c"))],
        cpu=_CPU,
        include=[work],
        defines=[f"CASE_COUNT={len(samples)}"],
        path_map=[],
    ) as objects:
        objects.link(elf, linker_script=_HERE / "mps2_an500.ld")
    return elf


def _emulate(elf: Path) -> str:
    command = ["qemu-system-arm", "-M", "mps2-an500", "-nographic", "-monitor", "none", "-serial", "null"]
    command += ["-icount", "shift=5", "-semihosting-config", "enable=on,target=native", "-kernel", str(elf)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if completed.returncode:
        raise SystemExit(f"the yardstick ended with {completed.returncode}: {completed.stdout}{completed.stderr}")
    # QEMU prints semihosting output on its standard error.
    return completed.stderr + completed.stdout


def _parse(library: Library, text: str, count: int) -> list[Run]:
    lines = [line for line in text.splitlines() if re.fullmatch("[0-9a-f]+", line)]
    width = 1 + len(library.outputs)
    if len(lines) != count * width:
        raise SystemExit(f"the yardstick said something else than {count} results: {text[:500]}")
    runs = []
    for start in range(0, len(lines), width):
        outputs = [
            np.frombuffer(bytes.fromhex(line), dtype=tensor.dtype).reshape(tensor.shape)
            for line, tensor in zip(lines[start + 1 : start + width], library.outputs, strict=True)
        ]
        runs.append(Run(outputs, int(lines[start], 16) * 40 // 32))
    return runs


def _sizes(library: Library, elf: Path) -> tuple[int, int]:
    """Return the bytes of the code and of the constants, without the harness's own."""
    harness = {"main", "reset", "failed", "leave", "semihost", "print_hex", "print_number"}
    harness |= {"case_prepare", "case_run", "case_print", "vectors"}
    code = constants = 0
    with elf.open("rb") as file:
        for symbol in ELFFile(file).get_section_by_name(".symtab").iter_symbols():
            name, kind, size = symbol.name.partition(".")[0], symbol["st_info"]["type"], symbol["st_size"]
            if name in harness or name.startswith("samples_"):
                continue
            code += size if kind == "STT_FUNC" else 0
            constants += size if kind == "STT_OBJECT" and symbol["st_value"] < 0x20000000 else 0
    return code, constants
