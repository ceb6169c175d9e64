# SPDX-License-Identifier: Apache-2.0
"""Commands with limits from their first moment on: memory, files, streams, the terminal."""

import contextlib
import fcntl
import json
import os
import random
import resource
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.faults.place import environment_of
from tests.faults.surroundings import Surroundings
from tests.signals import reset_signals
from utvm.paths import ROOT

_MARK = "UTVM_FAULTS_START"
_PATIENCE = 150.0
_GONE = 15.0
_TERMINAL = 2.5  # Seconds: most commands have ended by then.
_ANSWERS = {"right": ("passed", 0), "wrong": ("failed", 1)}
# Commands, their exit codes without limits, and how often they are drawn.
_COMMANDS: Sequence[tuple[str, int, int]] = (
    ("--list", 0, 3),
    ("--version", 0, 2),
    ("board.list", 0, 3),
    ("board.show stm32f746", 0, 2),
    ("cache.prune --dry-run", 0, 3),
    ("board.show nosuch", 2, 2),
    ("model.run nosuch.onnx --board host", 2, 2),
    ("right", 0, 3),
    ("wrong", 1, 2),
)


@dataclass(frozen=True)
class Start:
    """A command that was started, its ending and its leftovers."""

    command: str
    ending: str
    orphans: Sequence[str]
    seconds: float
    output: str


def run_start(number: int, seed: int, action: str, amount: float, around: Surroundings) -> Start:
    """Run a command with a limit to its end.

    Args:
        amount: the amount that is available, from 0 to 1.
    """
    chance = random.Random(f"{seed}-{number}-start")
    ((command, code, _),) = chance.choices(_COMMANDS, [weight for _, _, weight in _COMMANDS])
    reports = around.reports / str(number)
    words = command.split()
    if command in _ANSWERS:
        suite = str(around.suites / f"test_{command}.py")
        words = ["hil", "--board", "host", "--suite", suite, "--report-dir", str(reports)]
    name = f"{os.getpid()}-{number}"
    environment = {**os.environ, **around.environment(around.cache), _MARK: name}
    start = time.monotonic()
    exit_code, output = _run([str(ROOT / "inv"), *words], environment, action, amount)
    seconds = time.monotonic() - start
    ending = _ending(exit_code, output, code, command, reports)
    return Start(command, ending, _orphans(f"{_MARK}={name}".encode()), seconds, output)


def _run(words: Sequence[str], environment: Mapping[str, str], action: str, amount: float) -> tuple[int | None, str]:
    master, slave = os.openpty()
    terminal = action == "hang up"
    with subprocess.Popen(
        words,
        env=environment,
        stdin=slave if terminal else subprocess.DEVNULL,
        stdout=slave if terminal else subprocess.PIPE,
        stderr=slave if terminal else subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: _limit(action, amount),  # noqa: PLW1509
    ) as process:
        os.close(slave)
        if terminal:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(amount * _TERMINAL)
            os.close(master)
        try:
            output, _ = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            return None, ""
    if not terminal:
        os.close(master)
    return process.returncode, (output or b"").decode(errors="replace")


def _limit(action: str, amount: float) -> None:
    """Set the limit, in the process that becomes the command."""
    reset_signals()
    limits: dict[str, tuple[int, int]] = {
        "memory": (resource.RLIMIT_AS, int((40 + amount * 560) * (1 << 20))),
        "very little memory": (resource.RLIMIT_AS, int((2 + amount * 38) * (1 << 20))),
        "files": (resource.RLIMIT_NOFILE, 3 + int(amount * 62)),
        "file size": (resource.RLIMIT_FSIZE, int(amount**4 * (1 << 20))),
    }
    streams = {"stdin": 0, "stdout": 1, "stderr": 2}
    state, _, stream = action.partition(" ")
    if action in limits:
        which, most = limits[action]
        resource.setrlimit(which, (most, most))
    elif action == "hang up":
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    elif action == "umask 077":
        os.umask(0o077)
    else:
        for number in streams.values() if stream == "all" else (streams[stream],):
            os.close(number)
            if state == "full":
                # The lowest free descriptor, the one that was closed.
                os.set_inheritable(os.open("/dev/full", os.O_RDWR), True)


def _ending(exit_code: int | None, output: str, truth: int, command: str, reports: Path) -> str:
    reported = ""
    with contextlib.suppress(OSError):
        reported = json.loads((reports / "latest" / "report.json").read_text(encoding="utf-8"))["verdict"]
    if exit_code is None:
        return "hangs"
    if "Traceback (most recent call last)" in output:
        return "traceback"
    verdict = _ANSWERS.get(command, ("", 0))[0]
    if reported not in ("", verdict, "interrupted", "infrastructure"):
        return f"reports {reported} of a suite that is {verdict}"
    if exit_code == truth:
        return "answer" if reported == verdict else f"exit code {exit_code} with the report {reported or 'missing'}"
    endings: Sequence[tuple[Callable[[int], bool], str]] = (
        (lambda code: code == 3, "unsaid" if reported and reported == verdict else "none"),
        (lambda code: code in (126, 127), "not started"),
        (lambda code: code < 0, f"died of signal {-exit_code}" if exit_code != -1 else "killed"),
    )
    return next((name for matches, name in endings if matches(exit_code)), f"exit code {exit_code}")


def _orphans(mark: bytes) -> list[str]:
    deadline = time.monotonic() + _GONE
    while (alive := [pid for pid in psutil.pids() if mark in environment_of(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [f"process {pid}" for pid in alive]
