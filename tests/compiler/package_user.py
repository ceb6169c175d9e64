# SPDX-License-Identifier: Apache-2.0
"""The resources of a packaged library's user: an empty folder, a compiler, an emulator, and no utvm."""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

FLAGS = ["-Wall", "-Wextra", "-Werror", "-std=c99", "-pedantic", "-ffp-contract=off", "-O2"]
ARM_FLAGS = ["-mcpu=cortex-m7", "-mthumb"]

# The smallest firmware: two vectors, newlib's start-up code, and its semihosting.
_VECTORS = '.section .vectors, "a"\n.word __stack, _start\n'

# Memory of Arm's MPS2 board with the AN500 image (Arm DAI 0500, table 3-1), as QEMU has it.
_MEMORY = """
MEMORY { code (rx) : ORIGIN = 0x00000000, LENGTH = 4M  data (rw) : ORIGIN = 0x20000000, LENGTH = 4M }
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) KEEP(*(.init)) KEEP(*(.fini)) . = ALIGN(4); } > code
  .ARM.exidx : { *(.ARM.exidx*) } > code
  .init_array : { __init_array_start = .; KEEP(*(.init_array*)) __init_array_end = .; } > code
  .data : { *(.data*) . = ALIGN(4); } > data
  .bss : { __bss_start__ = .; *(.bss*) *(COMMON) . = ALIGN(4); __bss_end__ = .; end = .; __end__ = .; } > data
  __stack = ORIGIN(data) + LENGTH(data);
}
"""


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive into a new folder and return it."""
    folder.mkdir()
    with tarfile.open(archive) as tar:
        # Debian 12's Python has no filters; later ones require one.
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder


def call(command: Sequence[str | Path], cwd: Path | None = None) -> str:
    """Run a tool without this project's environment; return its output."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C"}
    completed = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert not completed.stderr.strip() or "qemu" not in str(command[0]), completed.stderr
    return completed.stdout


def c_sources(package: Path) -> list[Path]:
    """The C files that the package's README lists."""
    return sorted((package / "codegen" / "host" / "src").glob("*.c"))


def build_and_run(package: Path, compiler: str, folder: Path, flags: Sequence[str] = ()) -> str:
    """Build the plain example for this computer as in the package's README; return its output."""
    program = folder / f"program_{compiler}"
    sources = [*c_sources(package), package / "examples" / "plain" / "main.c"]
    include = f"-I{package / 'codegen' / 'host' / 'include'}"
    call([compiler, *FLAGS, *flags, include, *sources, "-lm", "-o", program])
    return call([program])


def build_and_run_on_arm(package: Path, folder: Path) -> str:
    """Build the plain example for a Cortex-M7; return its output on QEMU's MPS2 AN500."""
    (folder / "vectors.S").write_text(_VECTORS)
    (folder / "memory.ld").write_text(_MEMORY)
    program = folder / "program.elf"
    sources = [*c_sources(package), package / "examples" / "plain" / "main.c", folder / "vectors.S"]
    include = f"-I{package / 'codegen' / 'host' / 'include'}"
    link = ["--specs=rdimon.specs", "-T", folder / "memory.ld", "-lm", "-o", program]
    call(["arm-none-eabi-gcc", *ARM_FLAGS, *FLAGS, include, *sources, *link])
    emulator = shutil.which("qemu-system-arm")
    assert emulator, "qemu-system-arm is not installed: see provision/debian.txt"
    options = ["-M", "mps2-an500", "-nographic", "-monitor", "none", "-serial", "null"]
    return call([emulator, *options, "-semihosting-config", "enable=on,target=native", "-kernel", program])


def parse_numbers(text: str, dtype: str) -> npt.NDArray[np.generic]:
    """Parse the numbers that an example printed, one per line."""
    return np.array([np.dtype(dtype).type(line) for line in text.split()], dtype)
