# SPDX-License-Identifier: Apache-2.0
"""Runs pyOCD's GDB server: monitors it, translates its errors and ends it reliably."""

import itertools
import re
import socket
import zipfile
from collections.abc import Mapping
from pathlib import Path

from utvm import boards, errors, probe, runtime
from utvm.base.process import Service, interpreter, version_of
from utvm.base.storage.config import read_yaml
from utvm.base.text import quoting, templates
from utvm.boards.described import pyocd
from utvm.boards.parts import PyOcdPart

_ALGORITHM = "algorithm.FLM"
_PAGE = 4096  # Bytes programmed per call.


def pack_for(board: boards.Board, part: PyOcdPart, folder: Path) -> Path | None:
    """Return the board's own pack for pyOCD, or one generated in ``folder``; None if it needs none."""
    algorithm = boards.algorithm_of(board)
    if algorithm is None:
        return board.directory / part.pack if part.pack else None
    archive = folder / f"{board.name}.pack"
    _compile(board, algorithm, folder / _ALGORITHM)
    description = templates.templates_of(__package__, html=True).get_template("chip.pdsc.j2")
    text = description.render(
        board=board,
        core=board.cpu_row.core.title(),
        target=part.target,
        flash=algorithm.region,
        ram=board.region(board.layout.data),
        algorithm=_ALGORITHM,
    )
    with zipfile.ZipFile(archive, "w") as pack:
        pack.writestr(f"utvm.{board.name}.pdsc", text)
        pack.write(folder / _ALGORITHM, _ALGORITHM)
    return archive


def _compile(board: boards.Board, algorithm: boards.Algorithm, output: Path) -> None:
    flash, common = algorithm.region, runtime.DIRECTORY / board.architecture / "flash" / "common"
    kinds = [(size, len(list(same))) for size, same in itertools.groupby(flash.sectors)]
    starts = itertools.accumulate((size * count for size, count in kinds), initial=0)
    sectors = [f"{{{size}u, {start}u}}" for (size, _), start in zip(kinds, starts, strict=False)]
    with board.compiler.compile_objects(
        output.parent,
        (algorithm.source, common / "descriptor.c"),
        cpu=board.cpu,
        include=(common, *runtime.include(board.architecture, "host_driven")),
        defines=(
            *algorithm.numbers.defines,
            f"UTVM_FLASH_NAME={quoting.c_string(board.name)}",
            f"UTVM_FLASH_START={flash.address:#x}u",
            f"UTVM_FLASH_BYTES={flash.size:#x}u",
            f"UTVM_FLASH_PAGE={_PAGE}u",
            f"UTVM_FLASH_KINDS={len(kinds)}u",
            f"UTVM_FLASH_SECTORS={', '.join(sectors)}",
        ),
    ) as objects:
        objects.link(output, linker_script=common / "algorithm.ld")


_INSIDE = Path(__file__).with_name("inside.py")

_OPTIONS: Mapping[str, str | int | float] = read_yaml(Path(__file__).with_name("options.yaml"))[0]
_GONE = re.compile(r"\[Errno 19\]|LIBUSB_ERROR_NO_DEVICE")


class PyOcd(Service):
    """A pyOCD process, for the length of a ``with`` block; ``gdb`` accepts one client once.

    Args:
        pack: description of the chip if it is not built in.
        serial: serial number of the probe.
        usb: socket of a virtual board's probe; None for this computer's USB.
    """

    def __init__(self, part: PyOcdPart, pack: Path | None, *, serial: str, log: Path, usb: Path | None = None) -> None:
        options = {**_OPTIONS, **part.options}
        self.gdb, theirs = socket.socketpair()
        channels = [f"gdb={theirs.fileno()}", *([f"usb={usb}"] if usb else [])]
        words: list[str | Path] = [
            *interpreter.python_command(str(_INSIDE), *channels, interpreter=_require_pyocd().python)
        ]
        words += ["gdbserver", "--no-wait", "--no-config", "--persist", "--target", part.target, f"--uid={serial}"]
        # pyOCD would run a script pyocd_user.py in its project folder, by default the current one.
        words += ["--project", "/"]
        words += ["--pack", pack.absolute()] if pack else []
        for name, value in options.items():
            words += ["-O", f"{name}={value}"]
        super().__init__(
            "pyOCD",
            words,
            log=log,
            health="GDB server listening",
            error=errors.ProbeError,
            hints=probe.HINTS["pyocd"],
            inherited=(theirs,),
            log_branch="utvm.probe.pyocd",
        )

    def stop(self) -> None:
        super().stop()
        self.gdb.close()

    def check(self) -> None:
        """Raise ProbeError if pyOCD has ended, with its last lines and a hint, or has lost its probe."""
        super().check()
        if _GONE.search(self.log.read_text(encoding="utf-8", errors="replace")):
            raise errors.ProbeError("the probe is gone from USB", "check its cable, then run this again")


def uid_of(kind: str, serial: str) -> str:
    """Return pyOCD's id of a probe: its serial number; for a J-Link, without leading zeros."""
    return serial.lstrip("0") if kind == "jlink" else serial


def version() -> str:
    """Return pyOCD's version; raises ToolchainError if it is not installed."""
    command = interpreter.python_command("pyocd", "--version", interpreter=_require_pyocd().python)
    return version_of(command, timeout=60, error=errors.ToolchainError, pattern=r"(\d\S*)")


def _require_pyocd() -> pyocd.Installed:
    path = pyocd.find()
    if path is None:
        raise errors.ToolchainError("pyOCD, which must drive the board, is not installed", pyocd.INSTALL)
    return path
