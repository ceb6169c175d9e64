# SPDX-License-Identifier: Apache-2.0
"""Work on an untrusted model in a forked process, with limits: TVM and ONNX are C++ that trusts its input."""

import contextlib
import gc
import logging
import os
import pickle
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn, TypeVar

from utvm.base.process import STOPPED_LOOKS, is_stopped, signals
from utvm.errors import CompileError, ProvisionError, UtvmError

CPU_SECONDS = 1800  # CPU time; the largest models for a microcontroller take a minute.
WALL_SECONDS = 3600  # Wall time, also on a busy machine.
MORE_BYTES = 8 << 30  # Address space beyond what this process already uses; LLVM reserves some without using it.
_LOG = logging.getLogger("utvm.compiler")
_ResultT = TypeVar("_ResultT")
_Answer = tuple[bool, object]
_INTERVAL = 1.0  # Seconds.
_MOST_OUTPUT = 1 << 20  # Bytes.
_onlookers: list[Callable[[], None]] = []


@contextlib.contextmanager
def looked_at(look: Callable[[], None]) -> Iterator[None]:
    """Call a function about once per second of such work, for the length of a ``with`` block."""
    _onlookers.append(look)
    try:
        yield
    finally:
        _onlookers.remove(look)


def run_bounded(
    origin: str, action: str, work: Callable[[], _ResultT], on_line: Callable[[str], None] | None = None
) -> _ResultT:
    """Run work in a child process and return its result, which must be picklable."""
    # Flush: the child would write buffered output a second time.
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    output = _create_file()
    end_with_us = signals.die_with_parent()
    child = os.fork()
    if child == 0:
        end_with_us()
        os.close(reading)
        # C++ writes messages for its own developers to the terminal.
        for standard in (1, 2):
            os.dup2(output, standard)
        _work(os.fdopen(writing, "wb"), work)
    os.close(writing)
    _LOG.debug("process %d has to %s: %s", child, action, origin)
    status = None
    try:
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            content = _read_result(pipe, child, action)
        if content is None:
            raise CompileError(
                f"{origin}: cannot {action} within {WALL_SECONDS} s", "the model is too large for any board"
            )
        _, status = os.waitpid(child, 0)
    finally:
        # Its children are in its session and end with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        if status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        _log_output(output, action, on_line)
    if status != 0:
        raise _exit_error(origin, action, os.waitstatus_to_exitcode(status))
    good, result = pickle.loads(content)
    if good:
        return result  # type: ignore[no-any-return]
    raise result


def _create_file() -> int:
    if sys.platform == "linux":  # It needs no disk.
        return os.memfd_create("said")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _log_output(output: int, action: str, on_line: Callable[[str], None] | None) -> None:
    with os.fdopen(output, "rb") as file:
        file.seek(0)
        for line in file.read(_MOST_OUTPUT).decode(errors="replace").splitlines():
            _LOG.debug("the process to %s printed: %s", action, line)
            if on_line:
                on_line(line)


def _exit_error(origin: str, action: str, code: int) -> CompileError:
    if code == -signal.SIGXCPU:
        return CompileError(
            f"{origin}: cannot {action} within {CPU_SECONDS} s of CPU", "the model is too large for any board"
        )
    how = f"exit code {code}"
    if code < 0:
        how = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return CompileError(
        f"{origin}: the process to {action} crashed ({how})",
        f"the model is damaged, needs more than {MORE_BYTES >> 30} GiB, or triggers a bug in TVM or ONNX",
    )


def _read_result(pipe: BinaryIO, child: int, action: str) -> bytes | None:
    deadline = time.monotonic() + WALL_SECONDS
    stopped = 0
    parts: list[bytes] = []
    while True:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([pipe], [], [], max(0.0, min(left, _INTERVAL)))
        if not ready:
            if left <= 0:
                return None
            stopped = stopped + 1 if is_stopped(child) else 0
            if stopped >= STOPPED_LOOKS:
                raise ProvisionError(f"the process to {action} was stopped by a signal", "run the command again")
            for look in _onlookers:
                look()
            continue
        if not (part := pipe.read(1 << 20)):
            return b"".join(parts)
        parts.append(part)


def _work(pipe: BinaryIO, work: Callable[[], object]) -> NoReturn:
    """Run in the child: do the work, write the reply, and exit without the parent's cleanup."""
    code = 1
    gc.freeze()  # The parent's objects stay: looking at them would copy their memory.
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_CPU, CPU_SECONDS)
        if sys.platform == "linux":  # Others do not keep that limit.
            addresses = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            _limit(resource.RLIMIT_AS, addresses + MORE_BYTES)
        answer = _result_of(work)
        pipe.write(pickle.dumps(answer))
        pipe.close()
        sys.stdout.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _result_of(work: Callable[[], object]) -> _Answer:
    try:
        return True, work()
    except UtvmError as error:
        # Drop the cause: it is TVM's and may not be picklable.
        return False, type(error)(error.message, error.hint)
    except (OSError, MemoryError) as error:
        return False, error  # A resource ran out: the command reports it.
    except Exception:
        return False, RuntimeError(traceback.format_exc())


def _limit(which: int, value: int) -> None:
    soft, hard = resource.getrlimit(which)
    lowest = min((item for item in (soft, hard, value) if item != resource.RLIM_INFINITY), default=value)
    resource.setrlimit(which, (lowest, hard))
