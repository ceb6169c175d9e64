# SPDX-License-Identifier: Apache-2.0
"""Runs OpenOCD: translates its errors, ends it reliably and keeps it private.

Its GDB port is a socket pair on its standard input and output. It listens on no port: a client of an OpenOCD port
can run commands as its user.
"""

import contextlib
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from utvm.base.process.service import Service
from utvm.base.text.quoting import tcl
from utvm.errors import ProbeError
from utvm.probe.udev import ACCESS_HINT

_READY = "utvm: OpenOCD is ready"
_NO_TARGET = "utvm: the target does not answer"

# Standard output belongs to GDB. Removing the other commands is a second line of defence.
_TCL = (
    "foreach command {exec open socket os.fork load interp package popen aio.pipe4 pipe kill} "
    "{ catch { rename $command {} } }; rename puts {}; proc puts {args} { echo [lindex $args end] }"
)

NO_ANSWER = "the probe works but the board does not answer: is it powered, is the debug cable in place?"
"""Hint if a probe finds no chip."""

# Messages of OpenOCD 0.12 and their remedies. The first match applies: causes before consequences.
_HINTS: tuple[tuple[str, str], ...] = (
    (r"LIBUSB_ERROR_ACCESS", ACCESS_HINT),
    (r"LIBUSB_ERROR_BUSY|already used", "another program uses the probe: another OpenOCD, an IDE?"),
    (
        r"serial mismatch|No device matches the serial",
        "no probe has that serial number: ./inv board.detect lists those that are plugged in",
    ),
    (
        r"no device found|open failed|LIBUSB_ERROR_NO_DEVICE|no ST-LINK detected|unable to find",
        "no probe is plugged in, or its cable only charges: ./inv board.detect lists probes",
    ),
    (r"failed to (send|receive) USB CMD", "the probe stopped answering: unplug and replug it"),
    (r"cannot connect to stlink server", "the virtual board is not running"),
    (
        r"target voltage may be too low|init mode failed|unable to connect to the target|Error connecting DP"
        r"|Could not initialize the debug port|" + re.escape(_NO_TARGET),
        NO_ANSWER,
    ),
    (
        r"IR capture error|scan chain interrogation failed|UNEXPECTED: ",
        "the probe works, but the board's JTAG chain is not there: is it powered? is it the board that was named?",
    ),
    (r"Can't find [^\n]*\.cfg|invalid command name|wrong # args", "the board's openocd.cfg is at fault"),
)


class OpenOcd:
    """An OpenOCD process, for the length of a ``with`` block; ``gdb`` accepts one client once.

    Args:
        config: the board's configuration file.
        commands: OpenOCD commands after it and before ``init``: to select a probe, for example.
        log: file for OpenOCD's output.
        start_timeout: seconds until the target must be examined.
        within: command prefix that runs it elsewhere.
    """

    def __init__(
        self,
        config: Path,
        *,
        commands: Sequence[str] = (),
        log: Path,
        start_timeout: float = 60.0,
        within: Sequence[str] = (),
    ) -> None:
        self._config = config
        self._commands = tuple(commands)
        self._log = log
        self._start_timeout = start_timeout
        self._within = within
        self._service: Service | None = None
        self.gdb: socket.socket

    def __enter__(self) -> "OpenOcd":
        self.gdb, theirs = socket.socketpair()
        # OpenOCD ignores an end of file before the first byte.
        self.gdb.sendall(b"+")
        service = self._prepare(theirs)
        try:
            service.__enter__()
        except BaseException as error:
            self.gdb.close()
            if isinstance(error, ProbeError):
                raise ProbeError(error.message, _hint_for(self._read_log()) or error.hint) from error
            raise
        self._service = service
        return self

    def __exit__(self, *_: object) -> None:
        if self._service is not None:
            self._service.stop()
        self.gdb.close()

    @property
    def running(self) -> bool:
        return self._service is not None and self._service.running

    @property
    def pid(self) -> int:
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

    def _prepare(self, channel: socket.socket) -> Service:
        before_config = (
            _TCL,
            "gdb_port pipe",
            "telnet_port disabled",
            "tcl_port disabled",
            # Without these two, OpenOCD returns zeros for a failed access.
            "gdb_report_data_abort enable",
            "gdb_report_register_access_error enable",
            # Software breakpoints do not work in flash, and on RISC-V they are traps of the program.
            "gdb_breakpoint_override hard",
            # It searches scripts in the current folder, which others may control; then, by -s, in the board's.
            "cd /",
        )
        after_config = (
            *self._commands,
            "init",
            f"if {{![[target current] was_examined]}} {{ echo {{{_NO_TARGET}}}; shutdown error }}",
            f"echo {{{_READY}}}",
        )
        words: list[str | Path] = [*self._within, "openocd"]
        for command in before_config:
            words += ["-c", command]
        config = self._config.absolute()
        # -f would put the path into a Tcl command in braces, unquoted.
        words += ["-s", config.parent, "-c", f"script {tcl(str(config))}"]
        for command in after_config:
            words += ["-c", command]
        return Service(
            "OpenOCD",
            words,
            log=self._log,
            health=re.escape(_READY),
            error=ProbeError,
            start_timeout=self._start_timeout,
            stdin=channel,
            stdout=channel,
            log_branch="utvm.probe.openocd",
            # It polls its target, and otherwise checks whether to poll.
            always_busy=True,
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
