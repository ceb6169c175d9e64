# SPDX-License-Identifier: Apache-2.0
"""A small environment, resolved and built for real by two independent builders, to the same bytes."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.environment.lock_maker import files_in
from tests.processes import has_ended, may_make_mounts
from utvm.environment import debian
from utvm.environment.locked import Store, fetch, load_lock_files
from utvm.environment.recipe import load_recipe
from utvm.paths import PROVISION, ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="this machine lacks mmdebstrap"),
]

# The program of a builder, in a folder of its own, with the lock and an archive only.
_BUILD = """
import json, sys
from pathlib import Path
from utvm.environment.builds import build_box
from utvm.environment.image import build
from utvm.environment.image import Layers
from utvm.environment.locked import fetch, load_lock_files
from utvm.environment.locked import Store
locked, store = load_lock_files(Path(sys.argv[1])), Store(Path("packages"))
fetch(locked, store, Path(sys.argv[2]), "", machine=True)
layers = Layers(locked, store, folder=Path("layers"))
made = build(locked, layers, Path("out"))
box = build_box(locked, layers, Path("box"))
print(json.dumps([made.digest, made.unpacked, box.digest]))
"""
_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
_OTHER_UID = 2_900_000  # A user id that no system assigns by default.
# Only root can disable the network.
_OFFLINE = ("unshare", "--net") if os.geteuid() == 0 else ()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ``provision/`` with Debian's essential packages, Python, and one Python package, resolved now.

    The package files are in the archive ``store`` beside it.
    """
    folder = tmp_path_factory.mktemp("small") / "provision"
    shutil.copytree(PROVISION, folder)
    (folder / "debian.txt").write_text("python3   runs everything\n")
    text = (folder / "environment.yaml").read_text()
    head, _, tail = text.partition("  packages:\n")
    text = head + "  packages: {}\n  without: {}\n  # What" + tail.partition("\n  # What")[2]
    head, _, tail = text.partition("  without:\n")
    (folder / "environment.yaml").write_text(head + "  without: {}\n  # Below" + tail.partition("\n  # Below")[2])
    (folder / "python.in").write_text("idna\n")
    head, *packages = (PROVISION / "pylock.toml").read_text().split("[[packages]]")
    (idna,) = (package for package in packages if 'name = "idna"' in package)
    (folder / "pylock.toml").write_text(f"{head}[[packages]]{idna}")
    recipe = load_recipe(folder)
    debian.write_lock(debian.resolve(recipe, debian.mirrors(recipe.debian)), folder / "debian.lock")
    fetch(load_lock_files(folder), Store(folder.parent / "store"), None, "", machine=True)
    return folder


def _start_builder(
    small: Path, folder: Path, umask: int, *, become: Sequence[str] = (), **env: str
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*_OFFLINE, *become, sys.executable, "-c", _BUILD, small, small.parent / "store"],
        cwd=folder,
        # Without a filter, Python's variables would reach the Python of the packages.
        env={**_ENVIRONMENT, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), **env},
        umask=umask,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def twins(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """The folders of two builders that have only the lock in common, and no network.

    As root with mounts of our own, the second builder is another user.
    """
    folder = tmp_path_factory.mktemp("twins")
    with tempfile.TemporaryDirectory(prefix="another place ") as name:
        second = Path(name)
        become: Sequence[str] = ()
        if os.geteuid() == 0 and may_make_mounts():
            become = _as_another_user(folder)
            shutil.chown(second, _OTHER_UID, _OTHER_UID)
            second.chmod(0o755)
        builders = [
            _start_builder(small, folder, 0o022, TZ="UTC", LC_ALL="C"),
            _start_builder(
                *(small, second, 0o077),
                become=become,
                TZ="Asia/Tokyo",
                LC_ALL="de_DE.UTF-8",
                HOME=name,
                PYTHONDONTWRITEBYTECODE="1",
                TAR_OPTIONS="--mode=0700",
            ),
        ]
        outputs = [builder.communicate(timeout=2400)[0] for builder in builders]
        assert [builder.returncode for builder in builders] == [0, 0]
        assert outputs[0] == outputs[1]
        assert json.loads(outputs[0])[1] > 50_000_000
        assert {path.stat().st_uid for path in second.iterdir()} == {_OTHER_UID if become else os.geteuid()}
        yield folder, second


def _as_another_user(folder: Path) -> Sequence[str]:
    """Return a command prefix that runs a command as a user with subordinate user ids.

    The user exists for that command only, and may read all files, as the checkout may be root's.
    """
    script = ""
    for name, line in {
        "passwd": f"another:x:{_OTHER_UID}:{_OTHER_UID}::/:/bin/sh",
        "subuid": "another:3000000:65536",
        "subgid": "another:3000000:65536",
    }.items():
        file = Path("/etc") / name
        (folder / name).write_text((file.read_text() if file.exists() else "") + line + "\n")
        (folder / name).chmod(0o644)
        script += f"mount --bind {shlex.quote(str(folder / name))} /etc/{name} && "
    script += f"exec setpriv --reuid {_OTHER_UID} --regid {_OTHER_UID} --clear-groups"
    script += ' --inh-caps +dac_read_search --ambient-caps +dac_read_search "$@"'
    return ("unshare", "--mount", "sh", "-c", script, "sh")


@pytest.mark.nightly  # like all tests of two builders' images and boxes
@pytest.mark.parametrize("output", ["out", "box"])
def test_two_builders_offline_build_the_same_bytes(twins: tuple[Path, Path], output: str) -> None:
    sums = [(folder / output / "SHA256SUMS").read_text() for folder in twins]
    assert sums[0] == sums[1]
    assert sorted(line.split("  ")[1] for line in sums[0].splitlines()) == [
        name for name in files_in(twins[0] / output) if name != "SHA256SUMS"
    ]


@pytest.mark.skipif(
    os.geteuid() != 0 or not may_make_mounts(), reason="this machine lacks the right to become another user"
)
def test_closed_temporary_folder_is_reported_to_a_user(small: Path, tmp_path: Path) -> None:
    """mmdebstrap also runs as other users."""
    with tempfile.TemporaryDirectory() as name:
        shutil.chown(name, _OTHER_UID, _OTHER_UID)
        completed = subprocess.run(
            [*_as_another_user(tmp_path), sys.executable, "-c", _BUILD, small, small.parent / "store"],
            cwd=name,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": name},
            capture_output=True,
            text=True,
            check=False,
        )
    assert completed.returncode == 1
    assert f"ProvisionError: {name}: other users may not enter it" in completed.stderr


@pytest.mark.nightly
def test_catalogue_has_the_checksum_of_the_box(twins: tuple[Path, Path]) -> None:
    catalogue = json.loads((twins[0] / "box" / "utvm.json").read_text())
    (provider,) = catalogue["versions"][0]["providers"]
    output = subprocess.run(
        ["sha256sum", twins[0] / "box" / provider["url"]], capture_output=True, text=True, check=True
    ).stdout
    assert (provider["checksum_type"], provider["checksum"]) == ("sha256", output.split()[0])


@pytest.mark.nightly
def test_disk_of_a_box_is_valid_and_not_newer_than_the_lock(
    small: Path, twins: tuple[Path, Path], tmp_path: Path
) -> None:
    """Checked by e2fsprogs; the tests of a real machine show that it boots."""
    if shutil.which("qemu-img") is None:
        pytest.skip("this machine lacks qemu-utils")
    subprocess.run(["tar", "-xf", twins[0] / "box" / "utvm.box", "-C", tmp_path], check=True)
    subprocess.run(["qemu-img", "convert", "-O", "raw", tmp_path / "box.img", tmp_path / "raw"], check=True)
    with (tmp_path / "raw").open("rb") as disk:
        first = disk.read(512)
    assert (first[446], first[450], first[510:]) == (0x80, 0x83, b"\x55\xaa")
    start = int.from_bytes(first[454:458], "little") * 512
    partition = f"{tmp_path / 'raw'}?offset={start}"
    subprocess.run(["/usr/sbin/e2fsck", "-f", "-n", partition], check=True, capture_output=True)
    epoch = load_lock_files(small).debian.epoch
    # Inode 2 is the root folder; then a file of a package, and files of the box.
    for name in ("<2>", "/etc/debian_version", "/etc/sudoers.d/vagrant", "/opt/utvm/environment.json"):
        output = subprocess.run(
            ["/usr/sbin/debugfs", "-R", f"stat {name}", partition], capture_output=True, text=True, check=True
        ).stdout
        times = {key: int(value, 16) for key, value in re.findall(r"(\w+time): 0x([0-9a-f]+):0", output)}
        assert times.pop("mtime") <= epoch
        assert times == dict.fromkeys(("ctime", "atime", "crtime"), epoch)
        assert "User:     0   Group:     0" in output
    home = subprocess.run(
        ["/usr/sbin/debugfs", "-R", "stat /home/vagrant", partition], capture_output=True, text=True, check=True
    ).stdout
    assert "User:  1000   Group:  1000" in home


def _wait_for_dpkg(builder: "subprocess.Popen[str]") -> list[psutil.Process]:
    """Wait until dpkg runs, the deepest process; return all descendants of the builder."""
    deadline = time.monotonic() + 300
    while builder.poll() is None and time.monotonic() < deadline:
        descendants = _descendants(builder.pid)
        if "dpkg" in _names(descendants):
            return descendants
        time.sleep(0.02)
    raise AssertionError("dpkg was never seen")


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)], ids=["SIGKILL", "SIGINT"]
)
def test_ended_build_leaves_no_processes(small: Path, tmp_path: Path, number: signal.Signals) -> None:
    builder = _start_builder(small, tmp_path, 0o022)
    try:
        descendants = _wait_for_dpkg(builder)
        builder.send_signal(number)
        builder.wait(60)
    finally:
        builder.kill()
        builder.communicate()
    assert all(has_ended(process.pid) for process in descendants)
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    if number is signal.SIGINT:
        assert files_in(tmp_path / "layers") == []


def _descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True) if psutil.pid_exists(pid) else []


def _names(processes: list[psutil.Process]) -> set[str]:
    names = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            names.add(process.name())
    return names
