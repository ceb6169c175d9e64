# SPDX-License-Identifier: Apache-2.0
"""OpenOCD under supervision: started with free ports, watched, its complaints translated, ended for certain."""

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from utvm.base.process.run import free_port
from utvm.base.process.service import Service
from utvm.errors import ProbeError
from utvm.probe.udev import ACCESS_HINT

_READY = "utvm: OpenOCD is ready"
_NO_TARGET = "utvm: the target does not answer"
_PORT_TRIES = 5

# What OpenOCD 0.12 says, and what its user can do about it. The first match counts: causes before consequences.
_HINTS: tuple[tuple[str, str], ...] = (
    (r"LIBUSB_ERROR_ACCESS", ACCESS_HINT),
    (r"LIBUSB_ERROR_BUSY|already used", "another program uses the probe: another OpenOCD, an IDE?"),
    (
        r"serial mismatch|No device matches the serial",
        "no probe has that serial number: ./inv board.detect lists those that are plugged in",
    ),
    (
        r"no device found|open failed|LIBUSB_ERROR_NO_DEVICE|no ST-LINK detected|unable to find",
        "no probe is plugged in, or its cable only charges: ./inv board.detect lists what is there",
    ),
    (r"failed to (send|receive) USB CMD", "the probe stopped answering: unplug and replug it"),
    (r"cannot connect to stlink server", "the virtual board is not running"),
    (
        r"target voltage may be too low|init mode failed|unable to connect to the target|Error connecting DP"
        r"|Could not initialize the debug port|" + re.escape(_NO_TARGET),
        "the probe works but the board does not answer: is it powered, is the debug cable in place?",
    ),
    (
        r"IR capture error|scan chain interrogation failed|UNEXPECTED: ",
        "the probe works, but the board's JTAG chain is not there: is it powered? is it the board that was named?",
    ),
    (r"Can't find [^\n]*\.cfg|invalid command name|wrong # args", "the board's openocd.cfg is at fault"),
)


class OpenOcd:
    """An OpenOCD process with one GDB port, for the length of a ``with`` block.

    Args:
        config: the board's configuration file.
        commands: OpenOCD commands run after it and before ``init``: which probe, for example.
        log: file that receives what OpenOCD prints.
        start_timeout: seconds until the target must have been examined.
        port: of its GDB server; by default any free one.
    """

    def __init__(
        self, config: Path, *, commands: Sequence[str] = (), log: Path, start_timeout: float = 60.0, port: int = 0
    ) -> None:
        self._config = config
        self._commands = tuple(commands)
        self._log = log
        self._start_timeout = start_timeout
        self._service: Service | None = None
        self._wanted = port
        self.gdb_port = 0

    def __enter__(self) -> "OpenOcd":
        for _ in range(_PORT_TRIES):
            port = self._wanted or free_port()
            service = self._prepare(port)
            try:
                service.__enter__()
            except ProbeError as error:
                raise ProbeError(error.message, _hint_for(self._read_log()) or error.hint) from error
            if f"Listening on port {port} for gdb connections" in self._read_log():
                self._service = service
                self.gdb_port = port
                return self
            # Between our finding a free port and OpenOCD's use of it another process took it. OpenOCD goes on
            # without a GDB port then.
            service.stop()
            if self._wanted:
                raise ProbeError(f"TCP port {port} is taken", "choose another one, or end the program that has it")
        raise ProbeError(
            f"OpenOCD found its GDB port taken {_PORT_TRIES} times in a row; its log {self._log} ends with:\n"
            + service.log_tail(),
            "which program takes every TCP port of this machine?",
        )

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._service is not None:
            self._service.stop()

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._service is not None and self._service.running

    @property
    def pid(self) -> int:
        """Process id."""
        if self._service is None:
            raise RuntimeError("OpenOCD has not been started")
        return self._service.pid

    def check(self) -> None:
        """Raise ProbeError if OpenOCD has ended, with its last lines and a hint."""
        if self._service is None:
            raise ProbeError("OpenOCD has not been started")
        try:
            self._service.check()
        except ProbeError as error:
            raise ProbeError(error.message, _hint_for(self._read_log()) or error.hint) from error

    def _prepare(self, port: int) -> Service:
        before_config = (
            f"gdb_port {port}",
            "telnet_port disabled",
            "tcl_port disabled",
            # Without these two, OpenOCD answers a failed access with zeros.
            "gdb_report_data_abort enable",
            "gdb_report_register_access_error enable",
            # Whatever a debugger asks for: flash takes no others, and on RISC-V they are traps of the program's.
            "gdb_breakpoint_override hard",
        )
        after_config = (
            *self._commands,
            "init",
            f"if {{![[target current] was_examined]}} {{ echo {{{_NO_TARGET}}}; shutdown error }}",
            f"echo {{{_READY}}}",
        )
        words: list[str | Path] = ["openocd"]
        for command in before_config:
            words += ["-c", command]
        words += ["-f", self._config]
        for command in after_config:
            words += ["-c", command]
        return Service(
            "OpenOCD",
            words,
            log=self._log,
            health=re.escape(_READY),
            error=ProbeError,
            start_timeout=self._start_timeout,
            says="utvm.probe.openocd",
            # It looks at its target, and when it does not, whether it should.
            restless=True,
        )

    def _read_log(self) -> str:
        with contextlib.suppress(OSError):
            return self._log.read_text(encoding="utf-8", errors="replace")
        return ""


def _hint_for(log: str) -> str:
    for pattern, hint in _HINTS:
        if re.search(pattern, log):
            return hint
    return ""
