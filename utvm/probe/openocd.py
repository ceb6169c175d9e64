# SPDX-License-Identifier: Apache-2.0
"""Runs OpenOCD: translates its errors, ends it reliably and keeps it private.

Its GDB port is a socket pair on its standard input and output. It listens on no port: a client of an OpenOCD port
can run commands as its user.
"""

import re
import socket
from collections.abc import Sequence
from pathlib import Path

from utvm import errors, probe
from utvm.base.process import Service
from utvm.base.text.quoting import tcl

_READY = "utvm: OpenOCD is ready"
_NO_TARGET = "utvm: the target does not answer"

_SCRIPT = Path(__file__).with_suffix(".tcl").read_text(encoding="utf-8")
_BEFORE_CONFIG = [line for line in _SCRIPT.splitlines() if line and not line.startswith("#")]
_AFTER_CONFIG = (
    "init",
    f"if {{![[target current] was_examined]}} {{ echo {{{_NO_TARGET}}}; shutdown error }}",
    f"echo {{{_READY}}}",
)


class OpenOcd(Service):
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
        self.gdb, theirs = socket.socketpair()
        # OpenOCD ignores an end of file before the first byte.
        self.gdb.sendall(b"+")
        words: list[str | Path] = [*within, "openocd"]
        for command in _BEFORE_CONFIG:
            words += ["-c", command]
        config = config.absolute()
        # -f would put the path into a Tcl command in braces, unquoted.
        words += ["-s", config.parent, "-c", f"script {tcl(str(config))}"]
        for command in (*commands, *_AFTER_CONFIG):
            words += ["-c", command]
        super().__init__(
            "OpenOCD",
            words,
            log=log,
            health=re.escape(_READY),
            error=errors.ProbeError,
            hints=probe.HINTS["openocd"],
            start_timeout=start_timeout,
            stdin=theirs,
            stdout=theirs,
            log_branch="utvm.probe.openocd",
            # It polls its target, and otherwise checks whether to poll.
            always_busy=True,
        )

    def stop(self) -> None:
        super().stop()
        self.gdb.close()
