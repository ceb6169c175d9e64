# SPDX-License-Identifier: Apache-2.0
"""One package of the locks is updated, with forced changes: the choice of the real apt, from a small mirror."""

import dataclasses
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import inv
from tests.environment.lock_maker import pylock
from utvm.environment import debian, python_lock
from utvm.environment.recipe import Recipe, load_recipe

# Package, version, source, and other fields. Most depend on lib; app 2 on its newest version.
_INDEX = [
    ("app", "1", "app", "Depends: lib, tool | other"),
    ("app", "2", "app", "Depends: lib (>= 2), fresh, tool (>= 1) | other"),
    ("lib", "1", "lib", ""),
    ("lib", "2", "lib", "Breaks: old (<< 2), tool (<< 1)"),
    ("lib-dev", "1", "lib", "Depends: lib (= 1)"),
    ("lib-dev", "2", "lib", "Depends: lib (= 2)"),
    ("old", "1", "old", ""),
    ("old", "2", "old", ""),
    ("tool", "1", "tool", "Depends: lib (>= 1)"),
    ("tool", "2", "tool", "Depends: lib (>= 1)"),
    ("fresh", "1", "fresh", ""),
]


def _stanza(package: str, version: str, source: str, more: str) -> str:
    file = f"pool/main/{source[0]}/{source}/{package}_{version}_amd64.deb"
    digest = hashlib.sha256(file.encode()).hexdigest()
    fields = [f"Package: {package}", f"Version: {version}", "Architecture: amd64", f"Source: {source}"]
    return "\n".join([*fields, *filter(None, [more]), f"Filename: {file}", "Size: 1", f"SHA256: {digest}"]) + "\n"


@pytest.fixture(scope="module")
def mirror() -> Iterator[tuple[dict[str, str], Recipe]]:
    """A signed mirror with two versions of each package, and a recipe with four of them."""
    with tempfile.TemporaryDirectory(prefix="m-") as name:  # A short name: the path of gpg's socket is limited.
        folder, home = Path(name), Path(name) / "gpg"
        release = folder / "debian" / "dists" / "bookworm"
        (release / "main" / "binary-amd64").mkdir(parents=True)
        index = "\n".join(_stanza(*row) for row in _INDEX).encode()
        (release / "main" / "binary-amd64" / "Packages").write_bytes(index)
        (release / "Release").write_text(
            "Suite: bookworm\nCodename: bookworm\nDate: Thu, 01 Jan 2026 12:00:00 UTC\nArchitectures: amd64\n"
            "Components: main\n"
            f"SHA256:\n {hashlib.sha256(index).hexdigest()} {len(index)} main/binary-amd64/Packages\n"
        )
        home.mkdir(mode=0o700)
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode=loopback", "--passphrase="]
        keyring = folder / "keyring.gpg"
        for words in (
            ["--quick-generate-key", "mirror", "ed25519", "sign", "never"],
            ["--output", keyring, "--export"],
            ["--output", release / "InRelease", "--clearsign", release / "Release"],
        ):
            subprocess.run([*gpg, *words], check=True, capture_output=True)
        recipe = load_recipe()
        part = recipe.debian.model_copy(update={"keyring": keyring, "suites": {"bookworm": "debian"}})
        machine = recipe.machine.model_copy(update={"packages": {}})
        packages = dict.fromkeys(("app", "lib-dev", "old", "tool"), "")
        try:
            yield (
                {"debian": f"file:{folder}/debian"},
                dataclasses.replace(recipe, debian=part, machine=machine, debian_packages=packages),
            )
        finally:
            subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)


@pytest.mark.parametrize(
    ("update", "newer", "new"),
    [
        # Dependencies, packages of the same source, and packages that the newer one breaks; nothing else.
        ("app", {"app", "lib", "lib-dev", "old"}, {"fresh"}),
        ("tool", {"tool"}, set()),
        ("old", {"old"}, set()),
        ("lib-dev", {"lib", "lib-dev", "old"}, set()),
    ],
)
def test_update_changes_only_required_packages(
    mirror: tuple[dict[str, str], Recipe], update: str, newer: set[str], new: set[str]
) -> None:
    bases, recipe = mirror
    newest = debian.resolve(recipe, bases)
    assert {package.version for package in newest.packages if package.name != "fresh"} == {"2"}
    rows = {row[0]: row for row in _INDEX if row[1] == "1" and row[0] != "fresh"}
    before = tuple(
        package.model_copy(update={"version": "1", "file": package.file.replace("_2_", "_1_")})
        for package in newest.packages
        if package.name in rows
    )
    lock = debian.resolve(recipe, bases, newest.model_copy(update={"packages": before}), update)
    versions = {package.name: package.version for package in lock.packages}
    assert versions.keys() == rows.keys() | new
    assert {name for name, version in versions.items() if version == "2"} == newer


def test_lock_stays_without_newer_versions(mirror: tuple[dict[str, str], Recipe]) -> None:
    bases, recipe = mirror
    lock = debian.resolve(recipe, bases)
    lock = lock.model_copy(update={"date": lock.date.replace(year=2020)})
    assert debian.resolve(recipe, bases, lock, "tool") == lock


_UV = """#!/bin/sh
echo "$@" >{folder}/arguments
for word; do case $word in --output-file=*) cp {folder}/answer "${{word#*=}}"; esac; done
"""


def test_uv_updates_one_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answer").write_text(pylock(("one-1.0-py3-none-any.whl", "")))
    (tmp_path / "uv").write_text(_UV.format(folder=tmp_path))
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    python_lock.resolve(tmp_path, load_recipe().python, "one")
    assert " --upgrade-package=one " in (tmp_path / "arguments").read_text()
    python_lock.resolve(tmp_path, load_recipe().python)
    assert "upgrade" not in (tmp_path / "arguments").read_text()


@pytest.mark.parametrize("words", [["--update", "no-such"], ["--update", "openocd", "--only", "python"]])
def test_unlocked_package_cannot_be_updated(words: list[str]) -> None:
    completed = inv("env.lock", *words)
    assert completed.returncode == 2
    assert f"--update {words[1]}: it is not locked" in completed.stderr
