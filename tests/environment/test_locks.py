"""The lists and locks in ``provision/``: that they belong together, and what is said when they do not."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.environment.lock_maker import deb, debian_lock, wheel, wheel_lock
from utvm.environment import debian, difference, python_lock
from utvm.environment.locked import load_locked
from utvm.environment.recipe import PROVISION, dpkg_filters, load_recipe
from utvm.errors import ConfigError, ProvisionError
from utvm.toolchain import ROOT, Toolchain


@pytest.fixture
def provision(tmp_path: Path) -> Path:
    """A copy of ``provision/`` to spoil."""
    return Path(shutil.copytree(PROVISION, tmp_path / "provision"))


def test_the_checkout_s_own_locks_belong_together() -> None:
    locked = load_locked()
    names = {package.name for package in locked.packages}
    assert {"libc6", "openocd", "gcc-arm-none-eabi", "apache-tvm", "numpy"} <= names
    assert locked.debian.date.tzinfo is not None


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("debian.txt", "openocd ", "openocd-next ", "it lacks openocd-next"),
        ("debian.txt", "cppcheck ", "apt ", "apt is in debian.txt too"),
        ("environment.yaml", "    clang: ", "    clang-99: ", "clang-99 is not in debian.txt"),
        ("environment.yaml", "    mypy: ", "    mypi: ", "mypi is not in python.lock"),
        ("environment.yaml", "architecture: amd64", "architecture: vax", "debian.architecture"),
        ("python.in", "pyserial\n", "pyserial>=999\n", "python.in asks for pyserial>=999, python.lock has"),
        ("python.in", "pyserial\n", "snowflake\n", "asks for snowflake, python.lock does not have it"),
        ("debian.lock", '"name": "apt"', '"nome": "apt"', "packages"),
        ("debian.lock", '"sha256": "', '"sha256": "x', "sha256"),
        ("wheels.lock", '"wheels"', '"wheels', "is not valid YAML"),
        ("python.lock", "annotated-types==", "annotated-types>=", "has no version or no hash"),
    ],
)
def test_a_file_changed_by_hand_is_named(provision: Path, file: str, old: str, new: str, said: str) -> None:
    _edit(provision / file, old, new)
    with pytest.raises(ConfigError, match=said.replace(">", "\\>")):
        load_locked(provision)


def test_a_wheel_that_the_python_lock_does_not_allow_is_refused(provision: Path) -> None:
    wheels = json.loads((provision / "wheels.lock").read_text())
    digest = wheels["wheels"][0]["sha256"]
    _edit(provision / "wheels.lock", digest, "0" * 64)
    with pytest.raises(ConfigError, match="is not a file that"):
        load_locked(provision)


@pytest.mark.parametrize(
    "file",
    [
        *("environment.yaml", "debian.txt", "debian.lock", "python.lock", "wheels.lock"),
        *("machine/configure.sh", "machine/root/etc/hostname"),
    ],
)
def test_the_digest_is_over_every_file(provision: Path, file: str) -> None:
    before = load_locked(provision).digest
    assert before == load_locked(provision).digest
    if file.endswith(("lock", "yaml", "txt")) and file not in ("debian.lock", "wheels.lock"):
        (provision / file).write_text((provision / file).read_text() + "# a word\n")
    else:
        (provision / file).write_text((provision / file).read_text() + "\n")
    assert load_locked(provision).digest != before


def test_markers_choose_among_a_release_s_versions(tmp_path: Path) -> None:
    lock = tmp_path / "python.lock"
    lock.write_text(
        "One==1.0 ; python_full_version < '3.11' \\\n    --hash=sha256:" + "1" * 64 + "\n"
        "One==2.0 ; python_full_version >= '3.11' \\\n    --hash=sha256:" + "2" * 64 + " \\\n"
        "    --hash=sha256:" + "3" * 64 + "\n"
        "winter==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:" + "4" * 64 + "\n"
    )
    python = load_recipe().python.model_copy(update={"without": {}})
    found = python_lock.pins(lock, python)
    assert list(found) == ["one"]
    assert found["one"].version == "2.0"
    assert found["one"].hashes == {"2" * 64, "3" * 64}


def test_a_lock_reads_back_as_it_was_written(tmp_path: Path) -> None:
    lock = debian_lock(deb("one", "3.134"), deb("two", "1:2~rc1+b3"))
    debian.write_lock(lock, tmp_path / "debian.lock")
    assert debian.load_lock(tmp_path / "debian.lock") == lock
    wheels = wheel_lock(wheel("one"), wheel("two", "1e3"))
    python_lock.write_lock(wheels, tmp_path / "wheels.lock")
    assert python_lock.load_lock(tmp_path / "wheels.lock") == wheels


def test_the_multilibs_kept_are_those_that_boards_link() -> None:
    """The compiler itself says where it looks for the libraries of each CPU."""
    for name, libraries in load_recipe().debian.multilibs.items():
        toolchain = Toolchain(name)
        asked = {
            subprocess.run(
                [toolchain.tool("gcc"), *cpu.flags, "-print-multi-directory"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            for cpu in toolchain.data.cpus.values()
        }
        assert set(libraries.keep) == asked - {"."}


def test_the_emulators_kept_are_those_of_the_boards() -> None:
    """QEMU has one for every architecture; only those that a board's file starts are kept."""
    files = (ROOT / "utvm" / "boards").glob("*/board.yaml")
    programs = {name for file in files for name in re.findall(r"program: (qemu-system-\w+)", file.read_text())}
    kept = {one.rpartition("/")[2] for one in load_recipe().debian.keep if "qemu-system" in one}
    assert kept == programs


def test_folders_on_the_way_to_what_is_kept_are_kept() -> None:
    filters = dpkg_filters(load_recipe().debian)
    below = "path-include=/usr/lib/arm-none-eabi/newlib/thumb/v7e-m+fp"
    assert [one for one in filters if one.startswith(below)] == [below, f"{below}/hard", f"{below}/hard/*"]
    assert max(filters.index(one) for one in filters if "exclude" in one) < filters.index(below)


def _states(folder: Path) -> tuple[str, str]:
    old = debian_lock(deb("gone"), deb("same"), deb("up", "1.0"), deb("odd", content=b"1"))
    up = deb("up", "1.1", archive="debian-security")
    new = debian_lock(deb("same"), up, deb("odd", content=b"2"), deb("here"), day=2)
    for name, lock, wheels in (("old", old, wheel("a", "1")), ("new", new, wheel("a", "2"))):
        (folder / name).mkdir()
        debian.write_lock(lock, folder / name / "debian.lock")
        python_lock.write_lock(wheel_lock(wheels), folder / name / "wheels.lock")
    return str(folder / "old"), str(folder / "new")


def test_a_difference_is_told_in_words(tmp_path: Path) -> None:
    old, new = _states(tmp_path)
    assert difference.describe(old, new) == [
        "Debian: gone 1.0-1 is gone",
        "Debian: here 1.0-1 is new",
        "Debian: odd 1.0-1 has another file, though its version is the same",
        "Debian: up 1.0 became 1.1 (security)",
        "Python: a 1 became 2",
        "Debian's indices: of 2026-01-01 12:00, now of 2026-01-02 12:00",
    ]
    assert difference.describe(old, old) == []


def test_a_difference_to_nothing_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a folder"):
        difference.describe(str(tmp_path), str(tmp_path))
    with pytest.raises(ConfigError, match="or a revision"):
        difference.describe("no-such-revision", str(PROVISION))


def _apt(monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    def run(*_: object, **__: object) -> str:
        return says

    monkeypatch.setattr("utvm.process.run", run)


def test_the_mirror_is_apt_s_own_or_the_option_s(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = load_recipe().debian
    _apt(monkeypatch, "bookworm http://one/debian/\nbookworm-security http://two/sec/\nnodistro http://three/\n")
    assert debian.mirrors(wanted) == {"debian": "http://one/debian", "debian-security": "http://two/sec"}
    assert debian.mirrors(wanted, "http://m/")["debian-security"] == "http://m/debian-security"
    assert debian.mirrors(wanted, "http://m/a/{archive}/2026")["debian"] == "http://m/a/debian/2026"
    with pytest.raises(ConfigError, match="no URL"):
        debian.mirrors(wanted, "m.example")
    _apt(monkeypatch, "noble http://one/ubuntu/\n")
    with pytest.raises(ProvisionError, match="no source for debian, debian-security"):
        debian.mirrors(wanted)
