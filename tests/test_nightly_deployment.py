# SPDX-License-Identifier: Apache-2.0
"""What GitHub and systemd start by themselves, and GitHub's forms: each is held against its own linter."""

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
    # GitHub's own schema of workflows, as the linter brings it along.
    "check-jsonschema": ("--builtin-schema=vendor.github-workflows",),
    # Offline: what it could ask GitHub is not what a test of ours is about.
    "zizmor": ("--offline", "--no-config", "--persona=pedantic", "--no-progress"),
}


def _lint(linter: str, workflow: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name(linter)
    command = [program, *_LINTERS[linter], workflow]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("workflow", sorted(_WORKFLOW.parent.iterdir()), ids=lambda path: str(path.stem))
@pytest.mark.parametrize("linter", _LINTERS)
def test_the_workflows_linters_find_nothing(linter: str, workflow: Path) -> None:
    done = _lint(linter, workflow)
    assert done.returncode == 0, done.stdout + done.stderr


def test_github_takes_the_forms_for_issues() -> None:
    program = Path(sys.executable).with_name("check-jsonschema")
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yaml"))
    command = [program, "--builtin-schema=vendor.github-issue-forms", *forms]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert forms and done.returncode == 0, done.stdout + done.stderr


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
def test_the_workflows_linters_find_what_is_wrong(
    tmp_path: Path, linter: str, right: str, wrong: str, finding: str
) -> None:
    text = _WORKFLOW.read_text()
    assert right in text
    spoilt = tmp_path / ".github" / "workflows" / "nightly.yaml"
    spoilt.parent.mkdir(parents=True)
    spoilt.write_text(text.replace(right, wrong))
    done = _lint(linter, spoilt)
    assert done.returncode != 0
    assert finding in done.stdout + done.stderr


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


def _analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed: sudo apt-get install systemd")
    return subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=60)


def _installed(folder: Path, names: str = "utvm-*") -> list[Path]:
    """Install the units as docs/nightly.md and docs/farm.md say, for a checkout that is where this one is."""
    units = []
    for path in sorted(_UNITS.glob(names)):
        unit = folder / path.name
        unit.write_text(path.read_text().replace("/srv/utvm", str(ROOT)))
        units.append(unit)
    return units


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    done = _analyze("verify", "--man=no", *_installed(tmp_path))
    assert (done.returncode, done.stderr.strip()) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("/inv nightly", "/no-such nightly"),
        ("NoNewPrivileges=", "NoNewPrivilege="),
        ("Type=oneshot", "Type=twoshots"),
        ("OnCalendar=*-*-* 01:17:00", "OnCalendar=nightly"),
    ],
)
def test_systemd_refuses_what_is_wrong(tmp_path: Path, right: str, wrong: str) -> None:
    units = _installed(tmp_path, "utvm-nightly.*")
    spoilt = 0
    for unit in units:
        text = unit.read_text()
        spoilt += text.count(right)
        unit.write_text(text.replace(right, wrong))
    assert spoilt == 1
    done = _analyze("verify", "--man=no", *units)
    assert done.returncode != 0 or done.stderr.strip()


@pytest.mark.parametrize("name", sorted(path.name for path in _UNITS.glob("*.service")))
def test_the_services_may_do_little(tmp_path: Path, name: str) -> None:
    done = _analyze("security", "--offline=true", "--no-pager", *_installed(tmp_path, name))
    found = re.search(rf"Overall exposure level for {re.escape(name)}: ([0-9.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= _WORST_EXPOSURE
