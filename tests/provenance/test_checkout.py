# SPDX-License-Identifier: Apache-2.0
"""Which commit a report is of: what git says, and what a command in another place is told."""

import subprocess
from pathlib import Path

import pytest

from utvm.provenance.location import location_variables, read_checkout


def _git(folder: Path, *words: str) -> str:
    somebody = ("-c", "user.name=x", "-c", "user.email=x@example.invalid")
    said = subprocess.run(["git", *somebody, *words], cwd=folder, capture_output=True, text=True, check=True)
    return said.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkout"
    folder.mkdir()
    _git(folder, "init", "--quiet")
    (folder / "one").write_text("1")
    (folder / ".gitignore").write_text("build\n")
    _git(folder, "add", ".")
    _git(folder, "commit", "--quiet", "--message=first")
    return folder


def test_a_checkout_as_it_was_committed(repository: Path) -> None:
    (repository / "build").write_text("what is ignored makes nothing dirty")
    found = read_checkout(repository)
    assert (found.commit, found.dirty) == (_git(repository, "rev-parse", "HEAD"), False)
    assert found.hostname == Path("/proc/sys/kernel/hostname").read_text().strip()


@pytest.mark.parametrize("name", ["one", "new"])
def test_a_file_that_differs_or_is_new_makes_it_dirty(repository: Path, name: str) -> None:
    (repository / name).write_text("2")
    assert read_checkout(repository).dirty is True


def test_a_program_that_its_settings_name_is_not_run(repository: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    _git(repository, "config", "core.fsmonitor", f"touch {marker}; false")
    assert read_checkout(repository).dirty is False
    assert not marker.exists()
    _git(repository, "status")
    assert marker.exists()


def test_a_work_tree_beside_it_has_its_own_commit(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    _git(repository, "worktree", "add", "--quiet", str(other))
    (other / "one").write_text("2")
    _git(other, "commit", "--quiet", "--all", "--message=second")
    assert read_checkout(other).commit == _git(other, "rev-parse", "HEAD") != read_checkout(repository).commit


def test_copy_in_another_repository_is_no_checkout(repository: Path) -> None:
    copy = repository / "vendor"
    copy.mkdir()
    assert (read_checkout(copy).commit, read_checkout(copy).dirty) == (None, None)


def test_without_git_nothing_is_made_up(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert (read_checkout(repository).commit, read_checkout(repository).dirty) == (None, None)


def test_a_command_in_another_place_is_told(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = location_variables("docker", {})
    here = read_checkout()
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", "/nowhere")
    assert read_checkout(repository) == here
