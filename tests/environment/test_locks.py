# SPDX-License-Identifier: Apache-2.0
"""The lists and locks in ``provision/`` are consistent, and inconsistencies are named."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.environment.lock_maker import deb, debian_lock, pylock
from utvm.environment import debian, python_lock
from utvm.environment.locked import describe, load_lock_files
from utvm.environment.recipe import dpkg_filters, load_recipe
from utvm.errors import ConfigError, ProvisionError
from utvm.paths import PROVISION, ROOT
from utvm.toolchain.compiler import Toolchain


@pytest.fixture
def provision(tmp_path: Path) -> Path:
    """A copy of ``provision/`` to change."""
    return Path(shutil.copytree(PROVISION, tmp_path / "provision"))


def test_locks_of_the_checkout_are_consistent() -> None:
    locked = load_lock_files()
    names = {package.name for package in locked.packages}
    assert {"libc6", "openocd", "gcc-arm-none-eabi", "apache-tvm", "numpy"} <= names
    assert locked.debian.date.tzinfo is not None


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("debian.txt", "openocd ", "openocd-next ", "it lacks openocd-next"),
        ("debian.txt", "cppcheck ", "apt ", "apt is in debian.txt too"),
        ("environment.yaml", "    python3-venv: ", "    python3-nothing: ", "python3-nothing is not in debian.txt"),
        ("environment.yaml", "    mypy: ", "    mypi: ", "mypi is not in pylock.toml"),
        ("environment.yaml", "architecture: amd64", "architecture: vax", "debian.architecture"),
        ("python.in", "pyserial\n", "pyserial>=999\n", "python.in asks for pyserial>=999, pylock.toml has"),
        ("python.in", "pyserial\n", "snowflake\n", "asks for snowflake, pylock.toml does not have it"),
        ("debian.lock", '"name": "apt"', '"nome": "apt"', "packages"),
        ("debian.lock", '"sha256": "', '"sha256": "x', "sha256"),
        ("pylock.toml", '"annotated-types"', '"annotated-types', "pylock.toml: is not a lock for Python 3.11"),
        ("pylock.toml", "hashes = { sha256", "hashes = { sha1", "pylock.toml: is not a lock for Python 3.11: 'sha256'"),
        ("pylock.toml", "path = ", "place = ", "pylock.toml: is not a lock for Python 3.11: .*path"),
        ("pylock.toml", "0-py3-none-any.whl", "0-py2-none-any.whl", "pylock.toml: is not a lock"),
    ],
)
def test_inconsistent_file_is_named(provision: Path, file: str, old: str, new: str, message: str) -> None:
    _edit(provision / file, old, new)
    with pytest.raises(ConfigError, match=message.replace(">", "\\>")):
        load_lock_files(provision)


@pytest.mark.parametrize(
    "file",
    [
        *("environment.yaml", "debian.txt", "debian.lock", "python.in", "pylock.toml"),
        *("machine/configure.sh", "machine/root/etc/hostname"),
    ],
)
def test_digest_covers_every_file(provision: Path, file: str) -> None:
    before = load_lock_files(provision).digest
    assert before == load_lock_files(provision).digest
    (provision / file).write_text((provision / file).read_text() + "\n")
    assert load_lock_files(provision).digest != before


def test_environment_uses_one_file_of_a_package(tmp_path: Path) -> None:
    """By the system's markers and the best matching tag, as in PEP 751."""
    lock = tmp_path / "pylock.toml"
    lock.write_text(
        pylock(
            ("one-1.0-py3-none-any.whl", "python_full_version < '3.11'"),
            ("one-2.0-py3-none-any.whl", "python_full_version >= '3.11'"),
            ("winter-1.0-py3-none-any.whl", "sys_platform == 'win32'"),
        ).replace(
            'wheels = [{ path = "wheels/one-2.0',
            'wheels = [{ path = "wheels/one-2.0-cp311-cp311-manylinux_2_17_x86_64.whl", size = 7, '
            f'hashes = {{ sha256 = "{"3" * 64}" }} }}, '
            '{ path = "wheels/one-2.0-cp311-cp311-manylinux_2_99_x86_64.whl", size = 7, '
            f'hashes = {{ sha256 = "{"4" * 64}" }} }}, '
            '{ path = "wheels/one-2.0',
        )
    )
    (wheel,) = python_lock.load_wheels(lock, load_recipe().python)
    assert (wheel.name, wheel.version, wheel.sha256) == ("one", "2.0", "3" * 64)


def test_lock_has_wheels_for_every_python() -> None:
    text = python_lock.LOCK.read_text()
    assert "://" not in text
    python = load_recipe().python
    names = {}
    for minor in range(10, 15):
        wheels = python_lock.load_wheels(python_lock.LOCK, python.model_copy(update={"version": f"3.{minor}"}))
        names[minor] = {wheel.name for wheel in wheels}
        (ffi,) = (wheel.file for wheel in wheels if wheel.name == "apache-tvm-ffi")
        assert f"cp3{minor}-" in ffi
    older = {"coloredlogs", "exceptiongroup", "humanfriendly", "mpmath", "sympy", "tomli"}
    assert names[14] == names[11] == names[10] - older | {"narwhals", "lazy-importer"}
    with pytest.raises(ConfigError, match=r"Python 3\.15"):
        python_lock.load_wheels(python_lock.LOCK, python.model_copy(update={"version": "3.15"}))


_UV = """#!/bin/sh
for word; do case $word in --output-file=*) cp {answer} "${{word#*=}}"; esac; done
"""


def _resolve(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """Write the lock from the output of a fake uv."""
    (folder / "answer").write_text(text)
    uv = folder / "uv"
    uv.write_text(_UV.format(answer=folder / "answer"))
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    python_lock.resolve(folder, load_recipe().python)
    return (folder / "pylock.toml").read_text()


def test_lock_has_only_files_for_our_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ("one-1.0-py3-none-any.whl", "python_full_version >= '3.10'"), ("two-1.0-py3-none-win32.whl", "")
    winter = ("winter-1.0-py3-none-any.whl", "sys_platform == 'win32'")
    address = "https://index.example/a/b/"
    text = pylock(files[0], winter).replace('path = "wheels/', f'url = "{address}')
    written = _resolve(tmp_path, monkeypatch, text)
    assert "index.example" not in written
    assert 'path = "wheels/one-1.0-py3-none-any.whl"' in written
    assert "winter" not in written
    assert "marker" not in written
    with pytest.raises(ProvisionError, match=r"not a lock for Python 3\.10"):
        _resolve(tmp_path, monkeypatch, pylock(*files))


def test_lock_is_read_back_unchanged(tmp_path: Path) -> None:
    lock = debian_lock(deb("one", "3.134"), deb("two", "1:2~rc1+b3"))
    debian.write_lock(lock, tmp_path / "debian.lock")
    assert debian.load_lock(tmp_path / "debian.lock") == lock


def test_multilibs_are_those_of_the_boards() -> None:
    """The compiler prints the folder of each CPU's libraries."""
    for name, libraries in load_recipe().debian.multilibs.items():
        toolchain = Toolchain(name)
        needed = {
            subprocess.run(
                [toolchain.tool("gcc"), *cpu.flags, "-print-multi-directory"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            for cpu in toolchain.data.cpus.values()
        }
        assert set(libraries.keep) == needed - {"."}


def test_emulators_are_those_of_the_boards() -> None:
    """QEMU has one for every architecture; the environment has only those in a board's file."""
    files = (ROOT / "utvm" / "boards").glob("*/board.yaml")
    programs = {name for file in files for name in re.findall(r"program: (qemu-system-\w+)", file.read_text())}
    included = {path.rpartition("/")[2] for path in load_recipe().debian.keep if "qemu-system" in path}
    assert included == programs


def test_parents_of_included_folders_are_included() -> None:
    filters = dpkg_filters(load_recipe().debian)
    below = "path-include=/usr/lib/arm-none-eabi/newlib/thumb/v7e-m+fp"
    assert [line for line in filters if line.startswith(below)] == [below, f"{below}/hard", f"{below}/hard/*"]
    assert max(filters.index(line) for line in filters if "exclude" in line) < filters.index(below)


def _states(folder: Path) -> tuple[str, str]:
    old = debian_lock(deb("gone"), deb("same"), deb("up", "1.0"), deb("odd", content=b"1"))
    up = deb("up", "1.1", archive="debian-security")
    new = debian_lock(deb("same"), up, deb("odd", content=b"2"), deb("here"), day=2)
    for name, lock, version in (("old", old, "1"), ("new", new, "2")):
        (folder / name).mkdir()
        debian.write_lock(lock, folder / name / "debian.lock")
        (folder / name / "pylock.toml").write_text(pylock((f"a-{version}-py3-none-any.whl", "")))
    return str(folder / "old"), str(folder / "new")


def test_difference_of_locks_is_described(tmp_path: Path) -> None:
    old, new = _states(tmp_path)
    assert describe(old, new) == [
        "Debian: gone 1.0-1 is gone",
        "Debian: here 1.0-1 is new",
        "Debian: odd 1.0-1 has another file, though its version is the same",
        "Debian: up 1.0 became 1.1 (security)",
        "Python: a 1 became 2",
        "Debian's indices: of 2026-01-01 12:00, now of 2026-01-02 12:00",
    ]
    assert describe(old, old) == []


def test_command_prints_the_differences_of_other_locks(tmp_path: Path) -> None:
    old, _ = _states(tmp_path)
    completed = inv("env.lock", "--since", old)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert {"Debian: gone 1.0-1 is gone", "Python: a 1 is gone"} <= set(completed.stdout.splitlines())
    assert inv("env.lock", "--since", PROVISION).stdout == "no difference\n"


def test_comparison_with_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a folder"):
        describe(str(tmp_path), str(tmp_path))
    with pytest.raises(ConfigError, match="or a revision"):
        describe("no-such-revision", str(PROVISION))


def _apt(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    def run(*_: object, **__: object) -> str:
        return output

    monkeypatch.setattr("utvm.environment.debian.run_tool", run)


def test_mirror_is_that_of_apt_or_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe().debian
    _apt(monkeypatch, "bookworm http://one/debian/\nbookworm-security http://two/sec/\nnodistro http://three/\n")
    assert debian.mirrors(recipe) == {"debian": "http://one/debian", "debian-security": "http://two/sec"}
    assert debian.mirrors(recipe, "http://m/")["debian-security"] == "http://m/debian-security"
    assert debian.mirrors(recipe, "http://m/a/{archive}/2026")["debian"] == "http://m/a/debian/2026"
    with pytest.raises(ConfigError, match="not a URL"):
        debian.mirrors(recipe, "m.example")
    _apt(monkeypatch, "noble http://one/ubuntu/\n")
    with pytest.raises(ProvisionError, match="no source for debian, debian-security"):
        debian.mirrors(recipe)


def test_missing_resolver_is_an_error_before_any_work(tmp_path: Path) -> None:
    # Without uv in PATH; the mirror would refuse the connection.
    completed = inv("env.lock", "--mirror", "http://127.0.0.1:9/{archive}", PATH="/usr/bin:/bin")
    assert completed.returncode == 3
    assert "uv is not installed" in completed.stderr
