# SPDX-License-Identifier: Apache-2.0
"""Work in a process of its own: its result, and failures."""

import faulthandler
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NoReturn

import pytest

from hil_tests.operator_cases import OPERATOR_CASES
from utvm.compiler import bounded as door
from utvm.compiler import build, compile_model, load
from utvm.compiler.bounded import run_bounded
from utvm.compiler.read import onnx_file
from utvm.errors import CompileError, DoesNotFitError, ProvisionError


def _crash(number: signal.Signals) -> None:
    """End with a signal, without the stack trace that pytest would print."""
    faulthandler.disable()
    os.kill(os.getpid(), number)


def test_result_is_returned_without_side_effects() -> None:
    calls: list[int] = []

    def work() -> tuple[int, bytes]:
        calls.append(1)
        return os.getpid(), bytes(1 << 20)

    pid, content = run_bounded("m", "try", work)
    assert pid != os.getpid() and content == bytes(1 << 20) and calls == []


def test_terminal_output_is_in_the_log(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    def work() -> None:
        os.write(1, b"one\n")
        os.write(2, b"[12:00:00] relax.cc:67: Warning: two\n")

    with caplog.at_level("DEBUG", "utvm.compiler"):
        run_bounded("m", "try", work)
        with pytest.raises(CompileError, match="SIGABRT"):
            run_bounded("m", "crash", lambda: (os.write(2, b"three\n"), _crash(signal.SIGABRT)))
    assert capfd.readouterr() == ("", "")
    messages = [record.getMessage() for record in caplog.records]
    assert "the process to try printed: one" in messages and "the process to crash printed: three" in messages
    assert "the process to try printed: [12:00:00] relax.cc:67: Warning: two" in messages


@pytest.mark.slow
def test_stopped_process_is_reported_and_ended() -> None:
    with pytest.raises(ProvisionError, match="the process to try was stopped by a signal"):
        run_bounded("m", "try", lambda: os.kill(os.getpid(), signal.SIGSTOP))


def test_error_is_returned_unchanged() -> None:
    def work() -> NoReturn:
        raise DoesNotFitError("m: too large", "take a smaller one")

    with pytest.raises(DoesNotFitError) as caught:
        run_bounded("m", "try", work)
    assert (caught.value.message, caught.value.hint) == ("m: too large", "take a smaller one")


def test_internal_error_is_returned_with_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run_bounded("m", "try", lambda: 1 // 0)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_crash_is_an_error_that_names_the_model(number: signal.Signals) -> None:
    with pytest.raises(CompileError, match=rf"^m\.onnx: the process to try crashed \({number.name}\)"):
        run_bounded("m.onnx", "try", lambda: _crash(number))


def test_compiler_crash_leaves_no_cache_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = OPERATOR_CASES[0].model()
    with monkeypatch.context() as patch:
        patch.setattr(build, "import_model", lambda *_: _crash(signal.SIGABRT))
        with pytest.raises(CompileError, match=r"the process to compile the model crashed \(SIGABRT\)"):
            compile_model(model)
    assert compile_model(model).operators


def test_crash_of_onnx_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(OPERATOR_CASES[0].model().content)
    assert load(path).content == path.read_bytes()
    monkeypatch.setattr(onnx_file, "check", lambda *_: _crash(signal.SIGABRT))
    with pytest.raises(CompileError, match=r"m\.onnx: the process to read the model crashed \(SIGABRT\)"):
        load(path)


def test_memory_limit_is_enforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "MORE_BYTES", 64 << 20)
    with pytest.raises(MemoryError):
        run_bounded("m", "try", lambda: len(bytes(256 << 20)))


@pytest.mark.slow
def test_cpu_limit_is_enforced(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> NoReturn:
        while True:
            pass

    monkeypatch.setattr(door, "CPU_SECONDS", 1)
    with pytest.raises(CompileError, match="within 1 s of CPU"):
        run_bounded("m", "try", work)


@pytest.mark.slow
def test_wall_limit_ends_child_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def work() -> None:
        started = subprocess.Popen(["sleep", "1000"])
        (tmp_path / "pid.new").write_text(str(started.pid))
        (tmp_path / "pid.new").rename(tmp_path / "pid")
        time.sleep(1000)

    monkeypatch.setattr(door, "WALL_SECONDS", 1)
    with pytest.raises(CompileError, match="within 1 s"):
        run_bounded("m", "try", work)
    child = Path("/proc") / (tmp_path / "pid").read_text()
    while child.exists() and "(sleep) Z" not in (child / "stat").read_text():
        time.sleep(0.01)
