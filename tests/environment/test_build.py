"""A small environment, resolved and built for real: by two makers with nothing in common, to the same bytes."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.environment.lock_maker import files_in
from tests.processes import gone
from utvm.environment import debian, python_lock
from utvm.environment.locked import fetch, load_locked
from utvm.environment.recipe import PROVISION, load_recipe
from utvm.environment.store import Store
from utvm.toolchain import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="this machine lacks mmdebstrap"),
]

# What a maker runs, in a folder of its own: it has nothing but the lock and an archive.
_BUILD = """
import json, sys
from pathlib import Path
from utvm.environment.build import build
from utvm.environment.locked import fetch, load_locked
from utvm.environment.store import Store
locked, store = load_locked(Path(sys.argv[1])), Store(Path("packages"))
fetch(locked, store, Path(sys.argv[2]), "")
made = build(locked, store, Path("out"), layers=Path("layers"))
print(json.dumps([made.image.digest, made.image.unpacked]))
"""
# Only root can do without a network that is there.
_OFFLINE = ("unshare", "--net") if os.geteuid() == 0 else ()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ``provision/`` with what Debian cannot do without, Python, and one Python package, resolved just now.

    The package files are in the archive ``store`` beside it.
    """
    folder = tmp_path_factory.mktemp("small") / "provision"
    shutil.copytree(PROVISION, folder)
    (folder / "debian.txt").write_text("python3   runs everything\n")
    text = (folder / "environment.yaml").read_text()
    head, _, rest = text.partition("  packages:\n")
    text = head + "  packages: {}\n  without: {}\n  # What" + rest.partition("\n  # What")[2]
    head, _, rest = text.partition("  without:\n")
    (folder / "environment.yaml").write_text(head + "  without: {}\n  # Below" + rest.partition("\n  # Below")[2])
    (folder / "python.in").write_text("idna\n")
    pins = (PROVISION / "python.lock").read_text().replace("\\\n", "\0").splitlines()
    (folder / "python.lock").write_text(
        next(pin for pin in pins if pin.startswith("idna==")).replace("\0", "\\\n")
    )
    recipe = load_recipe(folder)
    debian.write_lock(debian.resolve(recipe, debian.mirrors(recipe.debian)), folder / "debian.lock")
    pinned = python_lock.pins(folder / "python.lock", recipe.python)
    python_lock.write_lock(python_lock.resolve(recipe, pinned), folder / "wheels.lock")
    fetch(load_locked(folder), Store(folder.parent / "store"), None, "")
    return folder


def _maker(small: Path, folder: Path, umask: int, **env: str) -> "subprocess.Popen[str]":
    folder.mkdir(parents=True)
    return subprocess.Popen(
        [*_OFFLINE, sys.executable, "-c", _BUILD, small, small.parent / "store"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        umask=umask,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_makers_without_a_network_make_the_same_bytes(small: Path, tmp_path: Path) -> None:
    makers = [
        _maker(small, tmp_path / "one", 0o022, TZ="UTC", LC_ALL="C"),
        _maker(small, tmp_path / "another place", 0o077, TZ="Asia/Tokyo", LC_ALL="de_DE.UTF-8", LANG="de_DE"),
    ]
    said = [maker.communicate(timeout=1200)[0] for maker in makers]
    assert [maker.returncode for maker in makers] == [0, 0]
    assert said[0] == said[1]
    assert json.loads(said[0])[1] > 50_000_000
    outputs = [tmp_path / place / "out" for place in ("one", "another place")]
    sums = [(output / "SHA256SUMS").read_text() for output in outputs]
    assert sums[0] == sums[1]
    assert sorted(line.split("  ")[1] for line in sums[0].splitlines()) == [
        name for name in files_in(outputs[0]) if name != "SHA256SUMS"
    ]


def _deep_at_work(maker: "subprocess.Popen[str]") -> list[psutil.Process]:
    """Wait until dpkg runs, which is as deep as it gets, and return all processes below the maker."""
    deadline = time.monotonic() + 300
    while maker.poll() is None and time.monotonic() < deadline:
        below = _below(maker.pid)
        if "dpkg" in _names(below):
            return below
        time.sleep(0.02)
    raise AssertionError("dpkg was never seen")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "SIGINT"])
def test_a_build_that_is_ended_leaves_nothing_running(small: Path, tmp_path: Path, number: signal.Signals) -> None:
    maker = _maker(small, tmp_path / "maker", 0o022)
    try:
        below = _deep_at_work(maker)
        maker.send_signal(number)
        maker.wait(60)
    finally:
        maker.kill()
        maker.communicate()
    assert all(gone(one.pid) for one in below)
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    if number is signal.SIGINT:
        assert files_in(tmp_path / "maker" / "layers") == []


def _below(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True) if psutil.pid_exists(pid) else []


def _names(processes: list[psutil.Process]) -> set[str]:
    names = set()
    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            names.add(one.name())
    return names
