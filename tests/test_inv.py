# SPDX-License-Identifier: Apache-2.0
"""``./inv`` itself: what a machine that lacks something is told, and that a second start is a short one."""

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
    """A checkout without .venv: what inv reads before it starts Python."""
    shutil.copy(ROOT / "inv", tmp_path / "inv")
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    shutil.copytree(ROOT / "provision", tmp_path / "provision")
    return tmp_path


def _pretend(checkout: Path, **commands: str) -> dict[str, str]:
    """Return an environment in which some commands are shell scripts of ours."""
    folder = checkout / "bin"
    folder.mkdir()
    for name, script in commands.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def _inv(checkout: Path, env: dict[str, str], words: Sequence[str] = ("hil",)) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "inv", *words],
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=60,
    )


def test_without_root_the_exact_command_is_printed(checkout: Path) -> None:
    env = _pretend(checkout, dpkg_query='[ "$3" = openocd ] || echo installed', id="echo 1000", sudo="exit 1")
    done = _inv(checkout, env)
    assert done.returncode == 3
    assert "openocd: drives debug probes" in done.stderr
    assert "sudo apt-get update && sudo apt-get install -y --no-install-recommends openocd" in done.stderr
    assert "gcc-arm-none-eabi:" not in done.stderr


@pytest.mark.skipif(not Path("/usr/sbin/dockerd").exists(), reason="this machine lacks Debian's docker.io")
def test_an_engine_is_found_where_a_user_s_path_does_not_go(checkout: Path) -> None:
    env = _pretend(checkout, dpkg_query='[ "$3" = openocd ] || echo installed', id="echo 1000", sudo="exit 1")
    # As Debian's /etc/profile has it for users.
    env["PATH"] = f"{checkout / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
    done = _inv(checkout, {key: value for key, value in env.items() if key != "DOCKER_HOST"}, ["docker.build"])
    assert done.returncode == 3
    assert "docker.io" not in done.stderr
    assert "openocd: drives debug probes" in done.stderr


def test_a_failing_apt_is_quoted_and_leaves_nothing_half_done(checkout: Path) -> None:
    env = _pretend(checkout, dpkg_query="exit 1", id="echo 0", apt_get="echo 'E: no network'; exit 100", sudo="exit 1")
    done = _inv(checkout, env)
    assert done.returncode == 3
    assert "E: no network" in done.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.slow
def test_a_failing_pip_is_quoted_and_tried_again_next_time(checkout: Path) -> None:
    (checkout / "provision" / "pylock.toml").write_text(pylock(("six-1.17.0-py3-none-any.whl", "")))
    env = _pretend(checkout, dpkg_query="echo installed")
    done = _inv(checkout, {**env, "PIP_RETRIES": "0"})
    assert done.returncode == 3
    assert "hint:" in done.stderr
    assert not (checkout / ".venv" / "python.stamp").exists()


def test_a_system_without_dpkg_is_told_what_to_do(checkout: Path) -> None:
    folder = checkout / "bin"
    folder.mkdir()
    for name in ("sh", "dirname", "mkdir", "cmp", "sed", "flock", "python3", "cat", "rm", "cp", "id", "readlink"):
        (folder / name).symlink_to(sys.executable if name == "python3" else shutil.which(name) or "")
    done = _inv(checkout, {**os.environ, "PATH": str(folder)})
    assert done.returncode == 3
    assert "not a Debian system" in done.stderr


_LACKS_OPENOCD = '[ "$3" = openocd ] || echo installed'
_APT = "echo apt-get $1 >>apt-was-here; exit 100"


def test_unsupported_python_is_refused_before_installing(checkout: Path) -> None:
    python = "case $1 in --version) echo Python 3.9.2 ;; *) exit 1 ;; esac"
    done = _inv(checkout, _pretend(checkout, dpkg_query="exit 1", id="echo 0", apt_get=_APT, python3=python))
    assert done.returncode == 3
    assert "Python 3.9.2 is not one of Python 3.10 to 3.14" in done.stderr
    assert not (checkout / "apt-was-here").exists()


@pytest.mark.parametrize(
    ("words", "variable", "installs"),
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
        (["env.diff", "a", "b"], "yes", False),
        (["vm.snapshot"], None, False),
        (["doctor"], None, False),
        ([], None, False),
    ],
)
def test_nothing_is_installed_that_was_not_allowed(
    checkout: Path, words: list[str], variable: str | None, installs: bool
) -> None:
    env = _pretend(checkout, dpkg_query=_LACKS_OPENOCD, id="echo 0", apt_get=_APT, sudo="exit 1")
    env.pop("UTVM_INSTALL", None)
    done = _inv(checkout, env | ({"UTVM_INSTALL": variable} if variable else {}), words)
    assert done.returncode == 3
    assert "openocd: drives debug probes" in done.stderr
    assert (checkout / "apt-was-here").exists() == installs
    assert not (checkout / ".venv").exists()


def test_what_may_be_installed_is_one_of_three_words(checkout: Path) -> None:
    done = _inv(checkout, {**os.environ, "UTVM_INSTALL": "perhaps"})
    assert done.returncode == 2
    assert "it is ask, yes or no" in done.stderr


@pytest.mark.parametrize(("answer", "installs"), [("", True), ("y", True), ("n", False), ("what?", False)])
def test_on_a_terminal_it_asks(checkout: Path, answer: str, installs: bool) -> None:
    env = _pretend(checkout, dpkg_query=_LACKS_OPENOCD, id="echo 0", apt_get=_APT, sudo="exit 1")
    env.pop("UTVM_INSTALL", None)
    ours, theirs = os.openpty()
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen([checkout / "inv", "hil"], env=env, **streams) as process:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        said = b""
        # A terminal whose other end is closed is an error to Linux.
        with contextlib.suppress(OSError):
            while more := os.read(ours, 4096):
                said += more
    os.close(ours)
    assert process.returncode == 3
    assert b"install that? [Y/n]" in said
    assert (checkout / "apt-was-here").exists() == installs


def test_a_command_that_only_prints_does_with_what_there_is(checkout: Path) -> None:
    """With a .venv that is of other lists: it is neither made anew, nor are packages looked for."""
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "it was started: $*"; exit 210\n')
    python.chmod(0o755)
    env = _pretend(checkout, dpkg_query="exit 1", apt_get=_APT)
    half_made = _inv(checkout, env, ["vm.status"])
    assert half_made.returncode == 3
    assert "this command only prints, so it installs nothing" in half_made.stderr
    (checkout / ".venv" / "python.stamp").write_text("of other lists")
    done = _inv(checkout, env, ["vm.status"])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip().endswith(f"main(handed_over) {checkout} vm.status")


def test_what_only_prints_is_a_command() -> None:
    (line,) = re.findall(r"^ *(\*\.board\.list .*)\) return 0 ;;$", (ROOT / "inv").read_text(), re.M)
    commands = set(tasks.namespace.task_names)
    assert {word.removeprefix("*.") for word in line.split(" | ")} | {"vm.snapshot"} <= commands


def test_a_second_start_does_not_install_again() -> None:
    done = subprocess.run([ROOT / "inv", "--list"], cwd="/", capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "hil" in done.stdout
    assert done.stderr == ""


def test_in_another_checkout_it_is_still_its_own(tmp_path: Path) -> None:
    (tmp_path / "utvm").mkdir()
    (tmp_path / "utvm" / "__init__.py").write_text("raise SystemExit('this is another one')\n")
    done = subprocess.run(
        [ROOT / "inv", "--list"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_interrupted_removal_is_not_taken_for_whole(checkout: Path) -> None:
    """Back at the lock that it was made of, the stamp alone would say that nothing lacks."""
    (checkout / ".venv").mkdir()
    stamp = checkout / ".venv" / "python.stamp"
    stamp.write_text("of another lock")
    env = _pretend(checkout, dpkg_query="echo installed", rm='[ "$1" != -rf ] || exit 1\nexec /bin/rm "$@"')
    assert _inv(checkout, env).returncode != 0
    assert not stamp.exists()


def test_a_program_that_cannot_be_loaded_is_no_failed_test(tmp_path: Path) -> None:
    (tmp_path / "utvm").mkdir()
    (tmp_path / "utvm" / "__init__.py").write_text("raise OSError(24, 'Too many open files')\n")
    done = subprocess.run(
        [sys.executable, "-S", "-c", start_of_inv(), tmp_path, "doctor"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "inv: error: the program cannot be loaded: [Errno 24] Too many open files\n"


def test_no_file_handles_at_the_start_fail_no_test() -> None:
    """Python's own modules are files too; without them an uncaught exception would end with exit code 1."""
    scarce = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); del resource\n"
    done = subprocess.run(
        [sys.executable, "-S", "-c", scarce + start_of_inv(), ROOT, "doctor"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(r"inv: error: the program cannot be loaded: \[Errno 24\] .*\n", done.stderr)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A whole small checkout, whose program prints the folder that its code is in."""
    folder = tmp_path / "other"
    (folder / "utvm").mkdir(parents=True)
    (folder / "utvm" / "__init__.py").touch()
    (folder / "utvm" / "__main__.py").write_text(
        "import pathlib, sys\ndef main(handed_over=0):\n    print(pathlib.Path(__file__).parents[1])\n"
        "    sys.exit(handed_over)\n"
    )
    (folder / "utvm" / "base" / "process").mkdir(parents=True)
    for ours in ("utvm/errors.py", "utvm/base/process/signals.py"):
        shutil.copy(ROOT / ours, folder / ours)
    for name in ("inv", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "provision", folder / "provision", ignore=shutil.ignore_patterns("debian.lock"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    shutil.copy(folder / "provision" / "pylock.toml", folder / ".venv" / "python.stamp")
    _search_path_of(folder).write_text(f"{folder}\n")
    script = folder / ".venv" / "bin" / "script"
    script.write_text(f"#!{folder}/.venv/bin/python\nfrom utvm.__main__ import main\nmain()\n")
    script.chmod(0o755)
    return folder


def _search_path_of(checkout: Path) -> Path:
    (packages,) = (checkout / ".venv" / "lib").glob("python3*/site-packages")
    return packages / "utvm.pth"


def _copied(other: Path, copy: Path) -> None:
    shutil.copytree(other, copy, symlinks=True)


def _hard_linked(other: Path, copy: Path) -> None:
    subprocess.run(["cp", "-al", other, copy], check=True)


def _moved(other: Path, copy: Path) -> None:
    _copied(other, copy)
    other.rename(other.with_name("gone"))


def _in_a_work_tree(other: Path, copy: Path) -> None:
    git = ["git", "-C", other, "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "inv", "pyproject.toml", "provision", "utvm"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message=all"], check=True)
    subprocess.run([*git, "worktree", "add", "--quiet", copy], check=True)
    _copied(other / ".venv", copy / ".venv")


@pytest.mark.parametrize("make", [_copied, _hard_linked, _moved, _in_a_work_tree])
def test_a_copy_of_a_checkout_runs_its_own_code(
    other: Path, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    copy = tmp_path / "copy"
    make(other, copy)
    for folder in (copy, other):
        if folder.exists():
            done = _inv(folder, {**os.environ}, ["--list"])
            assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder}\n", "")
            # Without ./inv as well.
            assert _search_path_of(folder).read_text() == f"{folder}\n"
            assert subprocess.check_output([folder / ".venv" / "bin" / "script"], text=True) == f"{folder}\n"


def test_a_linked_environment_stays_the_other_checkout_s(other: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(other, copy, ignore=shutil.ignore_patterns(".venv"))
    (copy / ".venv").symlink_to(other / ".venv")
    before = {path: path.stat().st_mtime_ns for path in (other / ".venv").rglob("*") if path.is_file()}
    assert _inv(copy, {**os.environ}, ["--list"]).stdout == f"{copy}\n"
    # Of another lock, it is replaced: the link, and not where it leads to.
    (copy / "provision" / "pylock.toml").write_text(pylock())
    env = _pretend(copy, dpkg_query="echo installed", python3='[ "$2" = -c ] || exit 1')
    assert _inv(copy, env).returncode == 3
    assert not (copy / ".venv").exists()
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_by_a_link_a_checkout_is_still_itself(other: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(other)
    (tmp_path / "inv").symlink_to("link/inv")
    for start in (tmp_path / "link", tmp_path):
        assert _inv(start, {**os.environ}, ["--list"]).stdout == f"{other}\n"
    assert _search_path_of(other).read_text() == f"{other}\n"


def test_an_environment_that_cannot_be_written_runs_our_code(other: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    _copied(other, copy)
    (copy / ".venv" / "bin" / "script.new").mkdir()  # Whoever may write everything cannot write this.
    done = _inv(copy, {**os.environ}, ["--list"])
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{copy}\n", "")


def test_another_checkout_on_the_search_path_is_not_run(other: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    _copied(other, copy)
    assert _inv(copy, {**os.environ, "PYTHONPATH": str(other)}, ["--list"]).stdout == f"{copy}\n"


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
def test_only_a_command_s_own_end_is_an_exit_code(checkout: Path, ending: str, exit_code: int, message: str) -> None:
    done = _inv(checkout, _with_program(checkout, ending), ["doctor"])
    assert done.returncode == exit_code
    assert (message in done.stderr) if message else done.stderr == ""


@pytest.mark.parametrize("files", [4, 8, 11, 12, 14])
def test_a_shell_without_files_has_no_verdict(checkout: Path, files: int) -> None:
    done = subprocess.run(
        [checkout / "inv", "doctor"],
        env=_with_program(checkout, "exit 210"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
    )
    assert done.returncode == 3
    assert "files may be open" in done.stderr or "ulimit -n" in done.stderr


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


@pytest.mark.parametrize("way", ["Ctrl-C", "INT", "TERM", "HUP"])
def test_a_signal_to_inv_is_the_program_s(checkout: Path, way: str) -> None:
    """It ends in order, and inv after it, as if there were one process."""
    env = _with_program(checkout, f"exec python3 -c {shlex.quote(_TAKES_SIGNALS)}")
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [checkout / "inv", "doctor"],
        env=env,
        stdin=theirs,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        if way == "Ctrl-C":
            os.write(ours, b"\x03")
        else:
            process.send_signal(signal.Signals[f"SIG{way}"])
        assert process.stdout.read() == f"took SIG{'INT' if way == 'Ctrl-C' else way}\n".encode()
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 3


def test_what_inv_has_on_its_standard_input_the_program_has(checkout: Path) -> None:
    env = _with_program(checkout, "cat; exit 210")
    done = subprocess.run([checkout / "inv", "doctor"], env=env, input=b"words", capture_output=True, check=True)
    assert done.stdout == b"words"


def test_the_program_dies_with_inv(checkout: Path) -> None:
    program = (
        f"exec {sys.executable} -c 'from utvm.base.process.signals import end_with_inv; import time;"
        " print(end_with_inv(), flush=True); time.sleep(60)'"
    )
    env = _with_program(checkout, program) | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([checkout / "inv", "doctor"], env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"True\n"
        process.kill()
        # Ends when the program's end of the pipe is closed.
        assert process.stdout.read() == b""


@pytest.mark.parametrize(("when", "exit_code"), [("within", 3), ("behind", 1)])
def test_a_library_that_calls_exit_is_no_failed_test(when: str, exit_code: int) -> None:
    """As OpenBLAS does where memory lacks, in a process that inv has not started."""
    call = "ctypes.CDLL(None).exit(1)"
    program = (
        "import ctypes\nfrom utvm.base.process.signals import guard_exit_code\n"
        f"with guard_exit_code():\n    {call if when == 'within' else 'pass'}\n{call}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == exit_code
    assert ("a library ended the program" in done.stderr) == (when == "within")
