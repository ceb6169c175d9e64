# SPDX-License-Identifier: Apache-2.0
"""``./inv`` itself: messages about missing parts of a machine, and a quick second start."""

import contextlib
import fcntl
import os
import re
import resource
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import tasks
from tests.environment.lock_maker import pylock
from tests.faults.suite_run import start_of_inv
from utvm.paths import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without .venv: the files that inv reads before it starts Python."""
    shutil.copy(ROOT / "inv", tmp_path / "inv")
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    shutil.copytree(ROOT / "provision", tmp_path / "provision")
    return tmp_path


def _replace_commands(checkout: Path, **commands: str) -> dict[str, str]:
    """Return an environment in which some commands are shell scripts of the test."""
    folder = checkout / "bin"
    folder.mkdir()
    for name, script in commands.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def _inv(checkout: Path, env: dict[str, str], arguments: Sequence[str] = ("hil",)) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "inv", *arguments],
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )


def test_without_root_the_exact_command_is_printed(checkout: Path) -> None:
    env = _replace_commands(checkout, dpkg_query='[ "$3" = openocd ] || echo installed', id="echo 1000", sudo="exit 1")
    completed = _inv(checkout, env)
    assert completed.returncode == 3
    assert "openocd: drives debug probes" in completed.stderr
    assert "sudo apt-get update && sudo apt-get install -y --no-install-recommends openocd" in completed.stderr
    assert "gcc-arm-none-eabi:" not in completed.stderr


@pytest.mark.skipif(not Path("/usr/sbin/dockerd").exists(), reason="this machine lacks Debian's docker.io")
def test_engine_outside_of_a_users_path_is_found(checkout: Path) -> None:
    env = _replace_commands(checkout, dpkg_query='[ "$3" = openocd ] || echo installed', id="echo 1000", sudo="exit 1")
    # The PATH of users in Debian's /etc/profile.
    env["PATH"] = f"{checkout / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
    completed = _inv(checkout, {key: value for key, value in env.items() if key != "DOCKER_HOST"}, ["docker.build"])
    assert completed.returncode == 3
    assert "docker.io" not in completed.stderr
    assert "openocd: drives debug probes" in completed.stderr


def test_failing_apt_is_quoted_and_leaves_no_environment(checkout: Path) -> None:
    env = _replace_commands(
        checkout, dpkg_query="exit 1", id="echo 0", apt_get="echo 'E: no network'; exit 100", sudo="exit 1"
    )
    completed = _inv(checkout, env)
    assert completed.returncode == 3
    assert "E: no network" in completed.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.slow
def test_failing_pip_is_quoted_and_tried_again(checkout: Path) -> None:
    (checkout / "provision" / "pylock.toml").write_text(pylock(("six-1.17.0-py3-none-any.whl", "")))
    env = _replace_commands(checkout, dpkg_query="echo installed")
    completed = _inv(checkout, {**env, "PIP_RETRIES": "0"})
    assert completed.returncode == 3
    assert "hint:" in completed.stderr
    assert not (checkout / ".venv" / "python.stamp").exists()


def test_system_without_dpkg_gets_a_hint(checkout: Path) -> None:
    folder = checkout / "bin"
    folder.mkdir()
    for name in ("sh", "dirname", "mkdir", "cmp", "sed", "flock", "python3", "cat", "rm", "cp", "id", "readlink"):
        (folder / name).symlink_to(sys.executable if name == "python3" else shutil.which(name) or "")
    environment = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"} | {"PATH": str(folder)}
    completed = _inv(checkout, environment)
    assert completed.returncode == 3
    assert "hint: install Docker, and suites run in a container" in completed.stderr
    # With an engine, only Python packages are needed.
    completed = _inv(checkout, {**environment, "DOCKER_HOST": "unix:///somewhere", "UTVM_INSTALL": "no"})
    assert "this is not a Debian system: where a tool is missing, suites run in a container" in completed.stderr
    assert ".venv is to be made of provision/pylock.toml" in completed.stderr


_LACKS_OPENOCD = '[ "$3" = openocd ] || echo installed'
_APT = "echo apt-get $1 >>apt-was-here; exit 100"


def test_unsupported_python_is_refused_before_installing(checkout: Path) -> None:
    python = "case $1 in --version) echo Python 3.9.2 ;; *) exit 1 ;; esac"
    completed = _inv(
        checkout, _replace_commands(checkout, dpkg_query="exit 1", id="echo 0", apt_get=_APT, python3=python)
    )
    assert completed.returncode == 3
    assert "Python 3.9.2 is not one of Python 3.10 to 3.14" in completed.stderr
    assert not (checkout / "apt-was-here").exists()


@pytest.mark.parametrize(
    ("arguments", "variable", "installs"),
    [
        (["hil"], None, True),
        (["hil"], "yes", True),
        (["hil"], "no", False),
        (["--no-install", "hil"], "yes", False),
        (["hil", "--board", "host", "--yes"], "no", True),
        (["--list"], "yes", False),
        (["hil", "--help"], "yes", False),
        (["hil", "-h"], "yes", False),
        (["vm.status"], "yes", False),
        (["farm.list"], "yes", False),
        (["vm.snapshot"], None, False),
        (["doctor"], None, False),
        ([], None, False),
    ],
)
def test_only_permitted_packages_are_installed(
    checkout: Path, arguments: list[str], variable: str | None, installs: bool
) -> None:
    env = _replace_commands(checkout, dpkg_query=_LACKS_OPENOCD, id="echo 0", apt_get=_APT, sudo="exit 1")
    env.pop("UTVM_INSTALL", None)
    completed = _inv(checkout, env | ({"UTVM_INSTALL": variable} if variable else {}), arguments)
    assert completed.returncode == 3
    assert "openocd: drives debug probes" in completed.stderr
    assert (checkout / "apt-was-here").exists() == installs
    assert not (checkout / ".venv").exists()


def test_install_variable_has_one_of_three_values(checkout: Path) -> None:
    completed = _inv(checkout, {**os.environ, "UTVM_INSTALL": "perhaps"})
    assert completed.returncode == 2
    assert "it is ask, yes or no" in completed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "installs"), [("", True), ("y", True), ("n", False), ("what?", False)])
def test_terminal_confirms_before_installing(checkout: Path, answer: str, installs: bool) -> None:
    env = _replace_commands(checkout, dpkg_query=_LACKS_OPENOCD, id="echo 0", apt_get=_APT, sudo="exit 1")
    env.pop("UTVM_INSTALL", None)
    controller, terminal = os.openpty()
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    with subprocess.Popen([checkout / "inv", "hil"], env=env, **streams) as process:
        os.close(terminal)
        os.write(controller, f"{answer}\n".encode())
        output = b""
        # Linux reports an error for a terminal whose other end is closed.
        with contextlib.suppress(OSError):
            while data := os.read(controller, 4096):
                output += data
    os.close(controller)
    assert process.returncode == 3
    assert b"install that? [Y/n]" in output
    assert (checkout / "apt-was-here").exists() == installs


def test_command_that_only_prints_installs_nothing(checkout: Path) -> None:
    """Its .venv is from other lists: it is not replaced, and no packages are looked for."""
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "it was started: $*"; exit 210\n')
    python.chmod(0o755)
    env = _replace_commands(checkout, dpkg_query="exit 1", apt_get=_APT)
    incomplete = _inv(checkout, env, ["vm.status"])
    assert incomplete.returncode == 3
    assert "this command only prints, so it installs nothing" in incomplete.stderr
    (checkout / ".venv" / "python.stamp").write_text("of other lists")
    completed = _inv(checkout, env, ["vm.status"])
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout.rstrip().endswith(f"main(handed_over) {checkout} vm.status")


def test_commands_that_only_print_exist() -> None:
    (line,) = re.findall(r"^ *(\*\.board\.list .*)\) return 0 ;;$", (ROOT / "inv").read_text(), re.M)
    commands = set(tasks.namespace.task_names)
    assert {word.removeprefix("*.") for word in line.split(" | ")} | {"vm.snapshot"} <= commands


def test_second_start_does_not_install_again() -> None:
    completed = subprocess.run(
        [ROOT / "inv", "--list"], cwd="/", capture_output=True, text=True, check=False, timeout=60
    )
    assert completed.returncode == 0, completed.stderr
    assert "hil" in completed.stdout
    assert completed.stderr == ""


def test_inv_in_another_checkout_runs_its_own_code(tmp_path: Path) -> None:
    (tmp_path / "utvm").mkdir()
    (tmp_path / "utvm" / "__init__.py").write_text("raise SystemExit('this is another one')\n")
    completed = subprocess.run(
        [ROOT / "inv", "--list"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert completed.returncode == 0, completed.stderr


def test_interrupted_removal_is_not_used(checkout: Path) -> None:
    """With the lock of the old environment again, the stamp alone would claim that the environment is complete."""
    (checkout / ".venv").mkdir()
    stamp = checkout / ".venv" / "python.stamp"
    stamp.write_text("of another lock")
    env = _replace_commands(checkout, dpkg_query="echo installed", rm='[ "$1" != -rf ] || exit 1\nexec /bin/rm "$@"')
    assert _inv(checkout, env).returncode != 0
    assert not stamp.exists()


def test_program_that_cannot_be_loaded_is_no_failed_test(tmp_path: Path) -> None:
    (tmp_path / "utvm").mkdir()
    (tmp_path / "utvm" / "__init__.py").write_text("raise OSError(24, 'Too many open files')\n")
    completed = subprocess.run(
        [sys.executable, "-S", "-c", start_of_inv(), tmp_path, "doctor"], capture_output=True, text=True, check=False
    )
    assert (completed.returncode, completed.stdout) == (3, "")
    assert completed.stderr == "inv: error: the program cannot be loaded: [Errno 24] Too many open files\n"


def test_lack_of_file_handles_is_no_failed_test() -> None:
    """Python's own modules are files, too; without them, an uncaught exception would end with exit code 1."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); del resource\n"
    completed = subprocess.run(
        [sys.executable, "-S", "-c", limit + start_of_inv(), ROOT, "doctor"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (completed.returncode, completed.stdout) == (3, "")
    assert re.fullmatch(r"inv: error: the program cannot be loaded: \[Errno 24\] .*\n", completed.stderr)


@pytest.fixture
def other_checkout(tmp_path: Path) -> Path:
    """A complete small checkout, whose program prints the folder of its code."""
    folder = tmp_path / "other"
    (folder / "utvm").mkdir(parents=True)
    (folder / "utvm" / "__init__.py").touch()
    (folder / "utvm" / "__main__.py").write_text(
        "import pathlib, sys\ndef main(handed_over=0):\n    print(pathlib.Path(__file__).parents[1])\n"
        "    sys.exit(handed_over)\n"
    )
    (folder / "utvm" / "base" / "process").mkdir(parents=True)
    for file in ("utvm/errors.py", "utvm/base/process/signals.py"):
        shutil.copy(ROOT / file, folder / file)
    for name in ("inv", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "provision", folder / "provision", ignore=shutil.ignore_patterns("debian.lock"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    shutil.copy(folder / "provision" / "pylock.toml", folder / ".venv" / "python.stamp")
    _search_path_file(folder).write_text(f"{folder}\n")
    script = folder / ".venv" / "bin" / "script"
    script.write_text(f"#!{folder}/.venv/bin/python\nfrom utvm.__main__ import main\nmain()\n")
    script.chmod(0o755)
    return folder


def _search_path_file(checkout: Path) -> Path:
    (packages,) = (checkout / ".venv" / "lib").glob("python3*/site-packages")
    return packages / "utvm.pth"


def _copy(other_checkout: Path, copy: Path) -> None:
    shutil.copytree(other_checkout, copy, symlinks=True)


def _hard_link(other_checkout: Path, copy: Path) -> None:
    subprocess.run(["cp", "-al", other_checkout, copy], check=True)


def _move(other_checkout: Path, copy: Path) -> None:
    _copy(other_checkout, copy)
    other_checkout.rename(other_checkout.with_name("gone"))


def _add_work_tree(other_checkout: Path, copy: Path) -> None:
    git = ["git", "-C", other_checkout, "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "inv", "pyproject.toml", "provision", "utvm"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message=all"], check=True)
    subprocess.run([*git, "worktree", "add", "--quiet", copy], check=True)
    _copy(other_checkout / ".venv", copy / ".venv")


@pytest.mark.parametrize("make", [_copy, _hard_link, _move, _add_work_tree])
def test_copy_of_a_checkout_runs_its_own_code(
    other_checkout: Path, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    copy = tmp_path / "copy"
    make(other_checkout, copy)
    for folder in (copy, other_checkout):
        if folder.exists():
            completed = _inv(folder, {**os.environ}, ["--list"])
            assert (completed.returncode, completed.stdout, completed.stderr) == (0, f"{folder}\n", "")
            # Without ./inv as well.
            assert _search_path_file(folder).read_text() == f"{folder}\n"
            assert subprocess.check_output([folder / ".venv" / "bin" / "script"], text=True) == f"{folder}\n"


def test_linked_environment_is_not_changed(other_checkout: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(other_checkout, copy, ignore=shutil.ignore_patterns(".venv"))
    (copy / ".venv").symlink_to(other_checkout / ".venv")
    before = {path: path.stat().st_mtime_ns for path in (other_checkout / ".venv").rglob("*") if path.is_file()}
    assert _inv(copy, {**os.environ}, ["--list"]).stdout == f"{copy}\n"
    # For another lock, the link is replaced, and not its target.
    (copy / "provision" / "pylock.toml").write_text(pylock())
    env = _replace_commands(copy, dpkg_query="echo installed", python3='[ "$2" = -c ] || exit 1')
    assert _inv(copy, env).returncode == 3
    assert not (copy / ".venv").exists()
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_link_to_a_checkout_runs_the_checkout(other_checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(other_checkout)
    (tmp_path / "inv").symlink_to("link/inv")
    for start in (tmp_path / "link", tmp_path):
        assert _inv(start, {**os.environ}, ["--list"]).stdout == f"{other_checkout}\n"
    assert _search_path_file(other_checkout).read_text() == f"{other_checkout}\n"


def test_read_only_environment_runs_the_checkouts_code(other_checkout: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    _copy(other_checkout, copy)
    (copy / ".venv" / "bin" / "script.new").mkdir()  # Not even root can write this file.
    completed = _inv(copy, {**os.environ}, ["--list"])
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, f"{copy}\n", "")


def test_checkout_on_the_search_path_is_not_run(other_checkout: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    _copy(other_checkout, copy)
    assert _inv(copy, {**os.environ, "PYTHONPATH": str(other_checkout)}, ["--list"]).stdout == f"{copy}\n"


def _with_program(checkout: Path, script: str) -> dict[str, str]:
    """Return the environment of a checkout whose program is a shell script."""
    program = checkout / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    (checkout / ".venv" / "python.stamp").touch()
    return dict(os.environ)


@pytest.mark.parametrize(
    ("ending", "exit_code", "message"),
    [
        ("exit 210", 0, ""),
        ("exit 211", 1, ""),
        ("exit 212", 2, ""),
        ("exit 213", 3, ""),
        ("exit 3", 3, ""),
        ("exit 7", 7, ""),
        ("exit 119", 119, ""),
        ("exit 0", 3, "exit code 0 before"),
        ("exit 1", 3, "exit code 1 before"),
        ("exit 2", 3, "exit code 2 before"),
        ("kill -KILL $$", 3, "exit code 137 before"),
        ("kill -SEGV $$", 3, "exit code 139 before"),
    ],
)
def test_only_a_commands_own_exit_code_counts(checkout: Path, ending: str, exit_code: int, message: str) -> None:
    completed = _inv(checkout, _with_program(checkout, ending), ["doctor"])
    assert completed.returncode == exit_code
    assert (message in completed.stderr) if message else completed.stderr == ""


@pytest.mark.parametrize("files", [4, 8, 11, 12, 14])
def test_shell_without_file_handles_has_no_verdict(checkout: Path, files: int) -> None:
    completed = subprocess.run(
        [checkout / "inv", "doctor"],
        env=_with_program(checkout, "exit 210"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
    )
    assert completed.returncode == 3
    assert "files may be open" in completed.stderr or "ulimit -n" in completed.stderr


_TAKES_SIGNALS = """
import os, signal, sys
def end(number, _):
    for another in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(another, signal.SIG_IGN)
    os.write(1, f"took {signal.Signals(number).name}\\n".encode())
    os._exit(213)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, end)
os.write(1, b"ready\\n")
signal.pause()
"""


@pytest.mark.parametrize("signal_name", ["Ctrl-C", "INT", "TERM", "HUP"])
def test_signal_to_inv_reaches_the_program(checkout: Path, signal_name: str) -> None:
    """The program ends in order, and then inv, as if they were one process."""
    env = _with_program(checkout, f"exec python3 -c {shlex.quote(_TAKES_SIGNALS)}")
    controller, terminal = os.openpty()
    with subprocess.Popen(
        [checkout / "inv", "doctor"],
        env=env,
        stdin=terminal,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(terminal, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        if signal_name == "Ctrl-C":
            os.write(controller, b"\x03")
        else:
            process.send_signal(signal.Signals[f"SIG{signal_name}"])
        assert process.stdout.read() == f"took SIG{'INT' if signal_name == 'Ctrl-C' else signal_name}\n".encode()
    os.close(controller)
    os.close(terminal)
    assert process.returncode == 3


def test_standard_input_of_inv_reaches_the_program(checkout: Path) -> None:
    env = _with_program(checkout, "cat; exit 210")
    completed = subprocess.run([checkout / "inv", "doctor"], env=env, input=b"words", capture_output=True, check=True)
    assert completed.stdout == b"words"


def test_program_ends_with_inv(checkout: Path) -> None:
    program = (
        f"exec {sys.executable} -c 'from utvm.base.process.signals import end_with_inv; import time;"
        " print(end_with_inv(), flush=True); time.sleep(60)'"
    )
    env = _with_program(checkout, program) | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([checkout / "inv", "doctor"], env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"True\n"
        process.kill()
        # This ends when the program's end of the pipe is closed.
        assert process.stdout.read() == b""


@pytest.mark.parametrize(("when", "exit_code"), [("within", 3), ("behind", 1)])
def test_library_that_calls_exit_is_no_failed_test(when: str, exit_code: int) -> None:
    """OpenBLAS does so when memory is lacking, in a process that inv has not started."""
    call = "ctypes.CDLL(None).exit(1)"
    program = (
        "import ctypes\nfrom utvm.base.process.signals import guard_exit_code\n"
        f"with guard_exit_code():\n    {call if when == 'within' else 'pass'}\n{call}"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert completed.returncode == exit_code
    assert ("a library ended the program" in completed.stderr) == (when == "within")
