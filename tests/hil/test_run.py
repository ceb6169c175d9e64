# SPDX-License-Identifier: Apache-2.0
"""Complete runs on the virtual board through the real OpenOCD, and the function behind the command."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hil_tests.operator_cases import OPERATOR_CASES
from tests.hil.running import Runner
from tests.portions import by_day
from utvm.errors import ConfigError
from utvm.hil import project, suites
from utvm.selection import BoardSelection, SuiteChoice

_ROOT = Path(__file__).parents[2]
_RUN = "import sys; from utvm.hil import suites; from utvm.selection import *; sys.exit(suites.run({}))"
# From this hook on, no file can be opened.
_WITHOUT_FILES = {
    hook: "import pytest, resource; from utvm.hil import plugin\n"
    f"def scarce({arguments}): resource.setrlimit(resource.RLIMIT_NOFILE, (3, 4096))\n"
    f"plugin.{hook} = pytest.hookimpl({order}=True)(scarce)\n"
    for hook, arguments, order in (
        ("pytest_load_initial_conftests", "early_config", "tryfirst"),
        ("pytest_configure", "config", "tryfirst"),
        ("pytest_collection", "session", "trylast"),
    )
}
_INTERRUPTED = (
    "import contextlib, signal; from utvm.base.process.signals import raise_on_signals\n"
    "raise_on_signals()\n"
    "with contextlib.suppress(KeyboardInterrupt): signal.raise_signal(signal.SIGINT)\n"
)


def _command(arguments: str, before: str = "") -> list[str]:
    return [sys.executable, "-c", before + _RUN.format(arguments)]


def _run(arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    command = _command(arguments, before)
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def no_orphans() -> Iterator[None]:
    """Fail if the test leaves an OpenOCD or a virtual board without a parent."""
    before = _orphans()
    yield
    assert _orphans() <= before


def _orphans() -> set[int]:
    return {
        process.pid
        for process in psutil.process_iter(["cmdline", "ppid"])
        if process.info["ppid"] == 1
        and any(name in " ".join(process.info["cmdline"] or []) for name in ("openocd", "utvm.virtual"))
    }


def test_suites_of_the_project() -> None:
    assert set(project.suite_names()) == {
        "cifar10",
        "counter",
        "debug",
        "digits",
        "faults",
        "flash",
        "health",
        "int8",
        "memory",
        "operators",
        "ram",
        "rpc",
        "rpc_faults",
        "standing_alone",
        "vta",
    }


def test_operator_suite_has_floats_and_integers() -> None:
    floats = [case for case in OPERATOR_CASES if any(array.dtype.kind == "f" for array in case.inputs)]
    integers = [case for case in OPERATOR_CASES if all(array.dtype.kind in "iu" for array in case.inputs)]
    assert len(OPERATOR_CASES) >= 20
    assert len(floats) >= 5
    assert len(integers) >= 5


def test_unknown_suite_is_refused_with_known_names() -> None:
    with pytest.raises(ConfigError) as caught:
        suites.run(BoardSelection("stm32f746", "virtual"), suites=SuiteChoice("flesh"))
    assert "flesh" in caught.value.message
    assert "flash" in caught.value.hint


def test_unknown_board_is_refused() -> None:
    with pytest.raises(ConfigError, match="no-such-board"):
        suites.run(BoardSelection("no-such-board", "virtual"))


@pytest.mark.slow
@pytest.mark.parametrize("name", by_day(_WITHOUT_FILES, "pytest_collection"))
def test_run_without_file_handles_is_infrastructure(name: str, tmp_path: Path) -> None:
    arguments = f"BoardSelection('host'), ReportChoice({str(tmp_path / 'reports')!r}), suites=SuiteChoice('health')"
    completed = _run(arguments, before=_WITHOUT_FILES[name])
    assert completed.returncode != 2, completed.stdout + completed.stderr
    assert "ProvisionError: a run cannot begin" in completed.stderr
    assert "INTERNALERROR" not in completed.stderr


@pytest.mark.slow
def test_run_without_memory_has_no_verdict() -> None:
    before = "from utvm.hil import report\nreport.describe_environment = lambda board: bytearray(1 << 62)\n"
    completed = _run("BoardSelection('host'), suites=SuiteChoice('health')", before=before)
    output = completed.stdout + completed.stderr
    assert completed.returncode == 3, output
    assert "a run cannot begin: not enough memory" in output
    assert "INTERNALERROR" not in output


@pytest.mark.slow
def test_interrupted_program_can_run_suites(tmp_path: Path) -> None:
    arguments = f"BoardSelection('host'), ReportChoice({str(tmp_path / 'reports')!r}), suites=SuiteChoice('health')"
    completed = _run(arguments, before=_INTERRUPTED)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert completed.stdout.splitlines()[-1].startswith("PASSED")


@pytest.mark.slow
@pytest.mark.usefixtures("no_orphans")
def test_flash_suite_on_the_virtual_board(tmp_path: Path) -> None:
    completed = _run(
        f"BoardSelection('stm32f746', 'virtual'), ReportChoice({str(tmp_path / 'reports')!r}), "
        "suites=SuiteChoice('flash')"
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    lines = completed.stdout.splitlines()
    assert lines[0].startswith("VIRTUAL stm32f746, run 2")
    assert re.fullmatch(r"PASSED on a VIRTUAL stm32f746: \d+ passed; exit code 0", lines[-1])
    assert (tmp_path / "reports" / "latest" / "report.json").is_file()


@pytest.mark.slow
@pytest.mark.usefixtures("no_orphans")
def test_run_survives_the_death_of_openocd(run_suite: Runner) -> None:
    completed = run_suite(
        "import psutil\n"
        "def test_before(board):\n    assert board.read_memory(0x20000000, 4)\n"
        "def test_kill(board):\n"
        "    for process in psutil.Process().children(recursive=True):\n"
        "        if process.name() == 'openocd':\n"
        "            process.kill()\n"
        "            process.wait()\n"
        "    assert board.read_memory(0x20000000, 4) == b'nothing'\n"
        "def test_after(board):\n    assert board.read_memory(0x20000000, 4)\n",
        fake=False,
    )
    assert completed.outcomes == {"test_before": "passed", "test_kill": "infrastructure", "test_after": "passed"}
    assert completed.exit_code == 3


@pytest.mark.slow
@pytest.mark.usefixtures("no_orphans")
def test_death_of_the_virtual_board_is_infrastructure(run_suite: Runner) -> None:
    completed = run_suite(
        "import psutil\n"
        "def test_kill(board):\n"
        "    for process in psutil.Process().children(recursive=True):\n"
        "        if 'utvm.virtual' in ' '.join(process.cmdline()):\n"
        "            process.kill()\n"
        "            process.wait()\n"
        "    assert board.read_memory(0x20000000, 4) == b'nothing'\n",
        fake=False,
    )
    assert completed.outcomes == {"test_kill": "infrastructure"}
    assert completed.exit_code == 3


@pytest.mark.slow
@pytest.mark.usefixtures("no_orphans")
def test_parallel_runs_have_their_own_virtual_boards(run_suite: Runner, tmp_path: Path) -> None:
    """The first run still uses its board, in the middle of a test, when the second one starts and ends."""
    (tmp_path / "test_long.py").write_text(
        "import pathlib, time\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "def test_it(board):\n"
        "    board.write_memory(0x20000000, b'ours')\n"
        "    (here / 'sleeping').touch()\n"
        "    while not (here / 'over').exists():\n        time.sleep(0.05)\n"
        "    assert board.read_memory(0x20000000, 4) == b'ours'\n"
    )
    first = subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "-putvm.hil.plugin", "-pno:cacheprovider", f"--rootdir={tmp_path}"),
            *("--board=stm32f746", "--virtual", f"--report-dir={tmp_path / 'reports'}", str(tmp_path)),
        ],
        cwd=_ROOT,
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "sleeping").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        second = run_suite(
            "def test_it(board):\n    board.write_memory(0x20000000, b'mine')\n"
            "    assert board.read_memory(0x20000000, 4) == b'mine'\n",
            fake=False,
        )
        (tmp_path / "over").touch()
        assert first.wait(120) == 0
    finally:
        first.kill()
        first.wait()
    assert second.report["verdict"] == "passed"


@pytest.mark.slow
@pytest.mark.usefixtures("no_orphans")
def test_session_is_reused_and_renewed_after_a_reset(run_suite: Runner) -> None:
    completed = run_suite(
        "import numpy as np\nimport pytest\n"
        "from hil_tests.programs import handwritten\n"
        "from utvm.session import DeviceFault\n"
        "X = [np.arange(4, dtype=np.int32)]\n"
        "@pytest.fixture\n"
        "def image(firmware):\n"
        "    count = handwritten('count', '  y[0] = ++count_runs;\\n  return 0;', 'static int count_runs;')\n"
        "    return firmware([count, handwritten('bad', '  __asm__ volatile(\"udf #0\");\\n  return 0;')])\n"
        "def runs(session, image):\n    return int(session(image).run('count', X).outputs[0][0])\n"
        "def test_first(session, image):\n    assert runs(session, image) == 1\n"
        "def test_reused(session, image):\n    assert runs(session, image) == 2\n"
        "def test_fault(session, image):\n"
        "    with pytest.raises(DeviceFault):\n        session(image).run('bad', X)\n"
        "def test_renewed(session, image):\n    assert runs(session, image) == 1\n"
        "def test_fails(session, image):\n    assert runs(session, image) == 99\n"
        "def test_renewed_after_a_failure(session, image):\n    assert runs(session, image) == 1\n"
        "def test_fresh(board, session, image):\n    assert runs(session, image) == 1\n",
        fake=False,
    )
    failed = [name for name, outcome in completed.outcomes.items() if outcome != "passed"]
    assert failed == ["test_fails"]
