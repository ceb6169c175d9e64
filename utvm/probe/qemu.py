# SPDX-License-Identifier: Apache-2.0
"""QEMU under supervision: a board that is emulated, with a GDB stub in place of a probe. OpenOCD takes no part."""

from pathlib import Path
from types import TracebackType

from utvm.base.process.service import Service
from utvm.boards import Emulator
from utvm.errors import ProbeError
from utvm.probe.gdb import GdbClient

# QEMU's control channel (QMP) is its standard input: it says that it is up, and which ports it has taken.
_QUESTIONS = """{"execute": "qmp_capabilities"}
{"execute": "query-chardev"}
"""
_LISTENING = r'(?=.*:(?P<{0}>\d+),server=on", "label": "{0}"\}})'


class QemuClient(GdbClient):
    """A connection to QEMU's GDB stub; all else as :class:`GdbClient`.

    A machine of several cores keeps the others where a reset leaves them: images are for the first. If they ran,
    QEMU with ``-icount`` would give each its whole slice of time before the first one's single instruction.
    """

    go, one = b"vCont;c:1", b"vCont;s:1"


class Qemu:
    """A QEMU process for the length of a ``with`` block: a board that stands before its first instruction.

    Its GDB stub and the board's serial line are TCP ports of the loopback interface, which QEMU picks itself: no
    other process can take them in between, unless one is named.

    Args:
        log: file that receives what QEMU prints.
        port: TCP port of the GDB stub; by default any free one.
    """

    def __init__(self, emulator: Emulator, *, log: Path, port: int = 0) -> None:
        words = [emulator.program, "-M", emulator.machine, "-icount", f"shift={emulator.icount_shift}"]
        if emulator.memory is not None:
            words += ["-m", f"size={emulator.memory // 1024}K"]
        words += emulator.options
        words += ["-S", "-nodefaults", "-display", "none", "-qmp", "stdio"]
        for label, at in (("console", 0), ("gdb", port)):
            words += ["-chardev", f"socket,id={label},host=127.0.0.1,port={at},server=on,wait=off,nodelay=on"]
        words += ["-serial", "chardev:console", "-gdb", "chardev:gdb"]
        self.advice = f"QEMU has ended or hangs: see its log {log}"
        self._service = Service(
            "QEMU",
            words,
            log=log,
            health="".join(map(_LISTENING.format, ("console", "gdb"))),
            error=ProbeError,
            hint=self.advice,
            stdin=_QUESTIONS,
            # Its processor may be halted; and to an empty line between questions it says nothing.
            disturbed=True,
        )

    def __enter__(self) -> "Qemu":
        self._service.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._service.stop()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._service.pid

    @property
    def gdb_port(self) -> int:
        """TCP port of the GDB stub."""
        return self._port("gdb")

    @property
    def console_port(self) -> int:
        """TCP port of the board's serial line."""
        return self._port("console")

    def check(self) -> None:
        """Raise ProbeError if QEMU has ended, with its last lines."""
        self._service.check()

    def _port(self, label: str) -> int:
        found = self._service.health_match
        if found is None:
            raise RuntimeError("QEMU has not been started")
        return int(found[label])
