# SPDX-License-Identifier: Apache-2.0
"""Runs tools to completion and returns their output."""

import contextlib
import logging
import os
import re
import shlex
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from utvm.errors import UtvmError

_LOG = logging.getLogger("utvm.process")


def last_lines(log: Path, lines: int = 12) -> str:
    """Return the last lines of a log; empty if it cannot be read."""
    text = ""
    with contextlib.suppress(OSError):
        text = log.read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:])


def run_tool(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout: float = 300.0,
    error: type[UtvmError] = UtvmError,
    hint: str = "",
    temporary: Path | None = None,
    exit_meanings: Mapping[int, str] = MappingProxyType({}),
) -> str:
    """Run a tool to completion, for at most ``timeout`` seconds, and return its standard output.

    Args:
        error: raised if the tool is missing, fails or times out.
        temporary: folder for the tool's temporary files, instead of the system's.
        exit_meanings: error messages by exit code.
    """
    words = [str(word) for word in command]
    _LOG.debug("running %s", shlex.join(words))
    try:
        process = subprocess.run(
            words,
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            env={**os.environ, "TMPDIR": str(temporary)} if temporary else None,
        )
    except FileNotFoundError as cause:
        raise error(f"{words[0]} is not installed", "run ./inv doctor to see what is missing") from cause
    except OSError as cause:
        raise error(f"{words[0]} cannot be started: {cause.strerror or cause}", hint) from cause
    except subprocess.TimeoutExpired as cause:
        raise error(f"{words[0]} did not end within {timeout:g} s", hint) from cause
    if process.returncode != 0:
        _LOG.info("%s ended with exit code %d", words[0], process.returncode)
        output = (process.stderr or process.stdout).strip()
        failure = exit_meanings.get(process.returncode, f"failed with exit code {process.returncode}")
        raise error(f"{Path(words[0]).name} {failure}:\n{output}", hint)
    return process.stdout


def version_of(
    command: Sequence[str | Path], *, error: type[UtvmError], timeout: float = 300.0, pattern: str = ""
) -> str:
    """Return the version of a tool: the group of a pattern, or the first line of its output."""
    output = run_tool(command, error=error, timeout=timeout).strip()
    if not output:
        raise error(f"{command[0]} does not report its version", "is it the right program?")
    match = re.search(pattern, output) if pattern else None
    return match[1] if match else output.splitlines()[0]


def clean_environment(variables: Mapping[str, str]) -> Sequence[str]:
    """Return a command prefix that passes only these environment variables.

    For reproducible builds: a package's script may depend on any variable.
    """
    return (
        *("env", "--ignore-environment", "HOME=/root"),
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        *(f"{name}={value}" for name, value in variables.items()),
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
