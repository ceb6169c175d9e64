"""``./inv`` itself: what a machine that lacks something is told, and that a second start is a short one."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from utvm.toolchain import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without .venv: what inv reads before it starts Python."""
    shutil.copy(ROOT / "inv", tmp_path / "inv")
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


def _inv(checkout: Path, env: dict[str, str], command: str = "--list") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "inv", command],
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
    done = _inv(checkout, {key: value for key, value in env.items() if key != "DOCKER_HOST"}, "docker.build")
    assert done.returncode == 3
    assert "docker.io" not in done.stderr
    assert "openocd: drives debug probes" in done.stderr


def test_a_failing_apt_is_quoted_and_leaves_nothing_half_done(checkout: Path) -> None:
    env = _pretend(
        checkout, dpkg_query="exit 1", id="echo 0", apt_get="echo 'E: no network'; exit 100", sudo="exit 1"
    )
    done = _inv(checkout, env)
    assert done.returncode == 3
    assert "E: no network" in done.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.slow
def test_a_failing_pip_is_quoted_and_tried_again_next_time(checkout: Path) -> None:
    lock = checkout / "provision" / "python.lock"
    lock.write_text("six==1.17.0 --hash=sha256:" + "0" * 64 + "\n")
    env = _pretend(checkout, dpkg_query="echo installed")
    done = _inv(checkout, env)
    assert done.returncode == 3
    assert "hint:" in done.stderr
    assert not (checkout / ".venv" / "python.stamp").exists()


def test_a_system_without_dpkg_is_told_what_to_do(checkout: Path) -> None:
    folder = checkout / "bin"
    folder.mkdir()
    for name in ("sh", "dirname", "mkdir", "cmp", "sed", "flock", "python3", "cat", "rm", "cp"):
        (folder / name).symlink_to(shutil.which(name) or "")
    done = _inv(checkout, {**os.environ, "PATH": str(folder)})
    assert done.returncode == 3
    assert "not a Debian system" in done.stderr


def test_a_second_start_does_not_install_again() -> None:
    done = subprocess.run(
        [ROOT / "inv", "--list"], cwd="/", capture_output=True, text=True, check=False, timeout=60
    )
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
