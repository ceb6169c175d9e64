# SPDX-License-Identifier: Apache-2.0
"""Processes: start, health check and certain end."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import has_ended
from utvm.base.process import Service, Subprocess, run_tool, version_of
from utvm.errors import ProbeError, ToolchainError


def _python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


def _service(tmp_path: Path, code: str, **options: Any) -> Service:
    return Service(
        "helper", _python(code), log=tmp_path / "log", health=r"ready (?P<port>\d+)", error=ProbeError, **options
    )


def test_service_is_ready_after_its_health_line(tmp_path: Path) -> None:
    with _service(tmp_path, "import time; print('ready 42'); time.sleep(60)") as service:
        assert service.health_match and service.health_match["port"] == "42"
        assert service.running
        pid = service.pid
    assert has_ended(pid)


def test_service_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready 1'); time.sleep(60)"
    with _service(tmp_path, code, stop_timeout=0.2) as service:
        pid = service.pid
    assert has_ended(pid)


def test_children_of_a_service_end_with_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('ready', child.pid); time.sleep(60)"
    )
    with _service(tmp_path, code) as service:
        assert service.health_match
        child = int(service.health_match["port"])
    assert has_ended(child)


@pytest.mark.parametrize("again", ["", "raise_on_signals(); "], ids=["", "begun again"])
def test_interruption_lost_in_a_finalizer_is_raised_again(again: str) -> None:
    """Seen in a complete run: SIGTERM came while C code called Python, and the run went on to pass."""
    code = (
        "import os, signal, time\n"
        "from utvm.base.process.signals import Interrupted, raise_on_signals\n"
        "class Lost:\n"
        "    def __del__(self): os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.01)\n"
        "raise_on_signals()\n"
        "try:\n"
        f"    lost = Lost(); del lost; {again}time.sleep(20); print('went on')\n"
        "except Interrupted: print('interrupted')\n"
    )
    completed = subprocess.run(_python(code), capture_output=True, text=True, timeout=60, check=False)
    assert (completed.stdout, completed.stderr, completed.returncode) == ("interrupted\n", "", 0)


def test_child_of_a_killed_parent_does_not_start() -> None:
    """Seen to leave an emulator behind: its parent was killed before the child had asked the kernel to end with it."""
    code = (
        "import os, signal, subprocess, time\n"
        "from utvm.base.process.signals import die_with_parent\n"
        "us, then = os.getpid(), die_with_parent()\n"
        "def late():\n"
        "    os.kill(us, signal.SIGKILL)\n"
        "    while os.getppid() == us: time.sleep(0.01)\n"
        "    then()\n"
        "subprocess.run(['echo', 'alive'], preexec_fn=late)\n"
    )
    completed = subprocess.run(_python(code), capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout) == (-signal.SIGKILL, "")


def test_error_of_an_ended_service_has_its_output(tmp_path: Path) -> None:
    with (
        pytest.raises(ProbeError, match=r"exit code 7.*\n.*no such probe"),
        _service(tmp_path, "import sys; print('no such probe'); sys.exit(7)"),
    ):
        pass


def test_silent_service_is_an_error_and_is_ended(tmp_path: Path) -> None:
    service = _service(tmp_path, "import time; time.sleep(60)", start_timeout=0.5)
    with pytest.raises(ProbeError, match=r"not ready after 0\.5 s"), service:
        pass
    assert has_ended(service.pid)


def test_check_notices_a_killed_service(tmp_path: Path) -> None:
    with _service(tmp_path, "import time; print('ready 1'); time.sleep(60)") as service:
        os.kill(service.pid, signal.SIGKILL)
        assert has_ended(service.pid)
        with pytest.raises(ProbeError, match="helper ended unexpectedly"):
            service.check()


def test_service_with_an_unreadable_log_is_alive(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "utvm.base.process.helper")
    code = "import time; print('ready 1'); time.sleep(60)"
    with _service(tmp_path, code, log_branch="utvm.base.process.helper") as service:
        assert "ready 1" in caplog.messages
        (tmp_path / "log").unlink()
        (tmp_path / "log").mkdir()
        service.check()
        assert service.log_tail() == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_service_ends_with_its_parent(tmp_path: Path, number: signal.Signals) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from utvm.errors import ProbeError; from utvm.base.process import Service\n"
        "from utvm.base.process.signals import raise_on_signals\n"
        "raise_on_signals()\n"
        "command = [sys.executable, '-u', '-c', 'import time; print(\"ready\"); time.sleep(60)']\n"
        f"log = Path({str(tmp_path / 'log')!r})\n"
        "with Service('x', command, log=log, health='ready', error=ProbeError) as s:\n"
        "    print(s.pid, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(_python(program), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        parent.send_signal(number)
        parent.wait(10)
    assert has_ended(child)


def test_missing_tool_is_named() -> None:
    with pytest.raises(ToolchainError, match="no-such-compiler is not installed"):
        run_tool(["no-such-compiler"], error=ToolchainError)


def test_failing_tool_is_quoted() -> None:
    with pytest.raises(ToolchainError, match=r"exit code 3:\nbad input"):
        run_tool(_python("import sys; print('bad input', file=sys.stderr); sys.exit(3)"), error=ToolchainError)


def test_hanging_tool_is_ended() -> None:
    with pytest.raises(ToolchainError, match=r"did not end within 0\.3 s"):
        run_tool(_python("import time; time.sleep(60)"), timeout=0.3, error=ToolchainError)


def test_subprocess_reports_its_exit_code(tmp_path: Path) -> None:
    code = "import os, sys, time; print(os.getcwd()); time.sleep(0.5); sys.exit(5)"
    with Subprocess("helper", _python(code), log=tmp_path / "log", error=ProbeError, cwd=tmp_path) as job:
        with pytest.raises(RuntimeError, match="helper has not ended"):
            _ = job.exit_code
        assert has_ended(job.pid)
        assert not job.running
        assert job.exit_code == 5
        assert job.log_tail() == str(tmp_path)


def test_subprocess_may_end_itself(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit('in order'))\n"
        "print('up'); time.sleep(60)"
    )
    with Subprocess("helper", _python(code), log=tmp_path / "log", error=ProbeError) as job:
        while not job.log_tail():
            assert job.running
        job.ask_to_end()
        assert has_ended(job.pid)
        assert job.exit_code == 1
    assert job.log_tail().endswith("in order")


def test_running_subprocess_is_ended(tmp_path: Path) -> None:
    with Subprocess("helper", _python("import time; time.sleep(60)"), log=tmp_path / "log", error=ProbeError) as job:
        pid = job.pid
    assert has_ended(pid)


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo 'Tool 1.2 of today'; echo more", "1.2"),
        ("echo another; echo more", "another"),
        ("printf 'Tool \\377\\200 of today'", "\ufffd\ufffd"),
        ("printf '\\377'", "\ufffd"),
    ],
)
def test_version_is_read_from_any_output(script: str, version: str) -> None:
    assert version_of(["sh", "-c", script], error=ToolchainError, pattern=r"Tool (\S+)") == version


def test_tool_without_version_is_an_error() -> None:
    with pytest.raises(ToolchainError, match="sh does not report its version"):
        version_of(["sh", "-c", "echo"], error=ToolchainError)
