# SPDX-License-Identifier: Apache-2.0
"""The commit of a report: from git, or passed to a command in another location."""

import subprocess
from pathlib import Path

import pytest

from utvm.provenance.location import location_variables, read_checkout


def _git(folder: Path, *words: str) -> str:
    author = ("-c", "user.name=x", "-c", "user.email=x@example.invalid")
    completed = subprocess.run(["git", *author, *words], cwd=folder, capture_output=True, text=True, check=True)
    return completed.stdout.strip()


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


def test_unchanged_checkout_is_clean(repository: Path) -> None:
    (repository / "build").write_text("ignored files do not make it dirty")
    checkout = read_checkout(repository)
    assert (checkout.commit, checkout.dirty) == (_git(repository, "rev-parse", "HEAD"), False)
    assert checkout.hostname == Path("/proc/sys/kernel/hostname").read_text().strip()


@pytest.mark.parametrize("name", ["one", "new"])
def test_changed_or_new_file_makes_it_dirty(repository: Path, name: str) -> None:
    (repository / name).write_text("2")
    assert read_checkout(repository).dirty is True


def test_program_in_git_settings_is_not_run(repository: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    _git(repository, "config", "core.fsmonitor", f"touch {marker}; false")
    assert read_checkout(repository).dirty is False
    assert not marker.exists()
    _git(repository, "status")
    assert marker.exists()


def test_work_tree_has_its_own_commit(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    _git(repository, "worktree", "add", "--quiet", str(other))
    (other / "one").write_text("2")
    _git(other, "commit", "--quiet", "--all", "--message=second")
    assert read_checkout(other).commit == _git(other, "rev-parse", "HEAD") != read_checkout(repository).commit


def test_copy_in_another_repository_is_no_checkout(repository: Path) -> None:
    copy = repository / "vendor"
    copy.mkdir()
    assert (read_checkout(copy).commit, read_checkout(copy).dirty) == (None, None)


def test_commit_is_unknown_without_git(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert (read_checkout(repository).commit, read_checkout(repository).dirty) == (None, None)


def test_commit_is_passed_to_another_location(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = location_variables("docker", {})
    checkout = read_checkout()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", "/nowhere")
    assert read_checkout(repository) == checkout
