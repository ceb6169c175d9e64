# SPDX-License-Identifier: Apache-2.0
"""Workflows and forms of GitHub, and units of systemd: each is checked with its own linter."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from utvm.paths import ROOT

_WORKFLOW = ROOT / ".github" / "workflows" / "nightly.yaml"
_UNITS = ROOT / "provision" / "systemd"
_WORST_EXPOSURE = 2.5  # of 10: systemd calls it "OK" up to 4.9


_LINTERS = {
    # GitHub's own schema of workflows, which comes with the linter.
    "check-jsonschema": ("--builtin-schema=vendor.github-workflows",),
    # Offline: answers of GitHub are not part of this test.
    "zizmor": ("--offline", "--no-config", "--persona=pedantic", "--no-progress"),
}


def _lint(linter: str, workflow: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name(linter)
    command = [program, *_LINTERS[linter], workflow]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("workflow", sorted(_WORKFLOW.parent.iterdir()), ids=lambda path: str(path.stem))
@pytest.mark.parametrize("linter", _LINTERS)
def test_linters_find_no_error_in_the_workflows(linter: str, workflow: Path) -> None:
    completed = _lint(linter, workflow)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_issue_forms_match_githubs_schema() -> None:
    program = Path(sys.executable).with_name("check-jsonschema")
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yaml"))
    command = [program, "--builtin-schema=vendor.github-issue-forms", *forms]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert forms and completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.parametrize(
    ("linter", "right", "wrong", "finding"),
    [
        ("check-jsonschema", "timeout-minutes:", "timeout-minute:", "'timeout-minute' was unexpected"),
        ("check-jsonschema", "if: always()", "iff: always()", "'iff' was unexpected"),
        ("zizmor", "@11bd71901bbe5b1630ceea73d27597364c9af683", "@v4", "unpinned-uses"),
        ("zizmor", '"$BOARD"', "${{ matrix.board }}", "template-injection"),
        ("zizmor", "permissions: {}", "permissions: write-all", "excessive-permissions"),
    ],
)
def test_linters_find_errors_in_the_workflow(tmp_path: Path, linter: str, right: str, wrong: str, finding: str) -> None:
    text = _WORKFLOW.read_text()
    assert right in text
    changed = tmp_path / ".github" / "workflows" / "nightly.yaml"
    changed.parent.mkdir(parents=True)
    changed.write_text(text.replace(right, wrong))
    completed = _lint(linter, changed)
    assert completed.returncode != 0
    assert finding in completed.stdout + completed.stderr


def test_workflow_gives_each_board_one_runner() -> None:
    job = yaml.safe_load(_WORKFLOW.read_text())["jobs"]["board"]
    assert job["runs-on"] == ["self-hosted", "utvm-${{ matrix.board }}"]
    assert job["concurrency"] == {"group": "utvm-board-${{ matrix.board }}", "cancel-in-progress": False}
    assert job["strategy"]["fail-fast"] is False
    assert job["timeout-minutes"] > 0
    upload = job["steps"][-1]
    assert upload["if"] == "always()"
    assert upload["uses"].startswith("actions/upload-artifact@")
    run = job["steps"][-2]["run"]
    assert upload["with"]["path"] in run


def test_readme_commands_run_on_each_named_system() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.search(r"^Debian (\d+) or (\d+), Python 3", readme, re.M)
    assert named
    job = yaml.safe_load(_WORKFLOW.read_text())["jobs"]["newcomer"]
    assert job["strategy"]["matrix"]["debian"] == list(named.groups())
    assert job["steps"][-1]["run"].endswith('"debian:$DEBIAN" .ci/newcomer')
    script = (ROOT / ".ci" / "newcomer").read_text(encoding="utf-8")
    commands = [line for line in script.splitlines() if line.startswith("./inv ")]
    assert commands == ["./inv hil --board stm32f746", "./inv test --quick"]
    assert "./inv hil --board stm32f746 " in readme and re.search(r"^\./inv test .*--quick", readme, re.M)


def _analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed: sudo apt-get install systemd")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=60)


def _install(folder: Path, names: str = "utvm-*") -> list[Path]:
    """Install the units as docs/nightly.md and docs/farm.md describe, for this checkout's path."""
    units = []
    for path in sorted(_UNITS.glob(names)):
        unit = folder / path.name
        unit.write_text(path.read_text().replace("/srv/utvm", str(ROOT)))
        units.append(unit)
    return units


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    completed = _analyze("verify", "--man=no", *_install(tmp_path))
    assert (completed.returncode, completed.stderr.strip()) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("/inv nightly", "/no-such nightly"),
        ("NoNewPrivileges=", "NoNewPrivilege="),
        ("Type=oneshot", "Type=twoshots"),
        ("OnCalendar=*-*-* 01:17:00", "OnCalendar=nightly"),
    ],
)
def test_systemd_refuses_wrong_units(tmp_path: Path, right: str, wrong: str) -> None:
    units = _install(tmp_path, "utvm-nightly.*")
    count = 0
    for unit in units:
        text = unit.read_text()
        count += text.count(right)
        unit.write_text(text.replace(right, wrong))
    assert count == 1
    completed = _analyze("verify", "--man=no", *units)
    assert completed.returncode != 0 or completed.stderr.strip()


@pytest.mark.parametrize("name", sorted(path.name for path in _UNITS.glob("*.service")))
def test_services_have_few_rights(tmp_path: Path, name: str) -> None:
    completed = _analyze("security", "--offline=true", "--no-pager", *_install(tmp_path, name))
    match = re.search(rf"Overall exposure level for {re.escape(name)}: ([0-9.]+)", completed.stdout)
    assert match, completed.stdout + completed.stderr
    assert float(match[1]) <= _WORST_EXPOSURE
