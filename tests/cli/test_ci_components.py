# SPDX-License-Identifier: Apache-2.0
"""The GitHub action and the GitLab component: their scripts run in an empty home, without variables."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.cli.running import inv, lint
from utvm.paths import ROOT


def test_action_passes_linters() -> None:
    lint("check-jsonschema", "--builtin-schema=vendor.github-actions", ROOT / "action.yml")
    lint("zizmor", "--offline", "--no-config", "--no-progress", ROOT / "action.yml")


def _github(arguments: str) -> list[str]:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["inputs"].keys() == {"arguments", "directory"}
    inputs = {"${{ inputs.arguments }}": arguments, "${{ github.event.pull_request.base.sha }}": ""}
    scripts = []
    for step in action["runs"]["steps"]:
        environment = {name: inputs[value] for name, value in step.get("env", {}).items()}
        settings = "".join(f"export {name}='{value}'\n" for name, value in environment.items())
        if "run" in step:
            scripts.append(settings + step["run"])
    return scripts


def _gitlab(arguments: str) -> list[str]:
    header, job = yaml.safe_load_all((ROOT / "templates" / "hil.yml").read_text())
    assert header["spec"]["inputs"].keys() == {"arguments", "stage"}
    lines = [line for part in ("before_script", "script", "after_script") for line in job["hil"][part]]
    inputs = {"inputs.arguments": arguments, "component.server_fqdn": "x.org", "component.project_path": "a/utvm"}
    inputs["component.sha"] = "0123abc"
    return [re.sub(r"\$\[\[ ([\w.]+) \]\]", lambda match: inputs[match[1]], line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [_github, pytest.param(_gitlab, marks=pytest.mark.nightly)])
def test_steps_run_a_project_and_summarise(steps: Callable[[str], list[str]], tmp_path: Path) -> None:
    assert inv("init", tmp_path / "demo").returncode == 0
    programs = tmp_path / "bin"
    programs.mkdir()
    # Nothing is installed; the record shows that the installation would be of this version's sources.
    for name, text in {
        "sudo": "true",
        "apt-get": "true",
        "pipx": f'echo "$@" >> {tmp_path}/installed',
        "utvm": f'exec {sys.executable} -m utvm "$@"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI_", "UTVM_"))}
    environment = {
        **inherited,
        "HOME": str(tmp_path),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
    }
    for script in steps("hil --board host"):
        command = ["bash", "-e", "-c", script]
        completed = subprocess.run(command, cwd=tmp_path / "demo", env=environment, capture_output=True, check=False)
        assert completed.returncode == 0, (script, completed.stderr)
    installed = (tmp_path / "installed").read_text()
    assert installed in (f"install {ROOT}[boards]\n", "install utvm[boards] @ git+https://x.org/a/utvm@0123abc\n")
    assert "passed" in (tmp_path / "demo" / "build" / "reports" / "summary.md").read_text().lower()
