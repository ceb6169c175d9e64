# SPDX-License-Identifier: Apache-2.0
"""A hosted CI on this computer: it runs the workflows that ``init`` writes, unchanged.

Every job starts in an empty folder and an empty home, without ``.git``. Its cache and its reports stay. A job restores
the cache that the manuals of GitHub and GitLab name.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_NOTHING = ("sudo", "apt-get", "pipx")  # They would install packages that are installed already.
MAIN = "main"


@dataclass(frozen=True)
class Job:
    """A completed job: its result, its summary, and its folder."""

    passed: bool
    summary: str
    folder: Path


class HostedCI:
    """Runs jobs of a project.

    Args:
        folder: a folder of its own.
        webhook: the address for messages.
    """

    def __init__(self, folder: Path, webhook: str = "") -> None:
        self._webhook = webhook
        self._folder = folder
        self._caches: dict[tuple[str, str], Path] = {}  # branch and key -> folder; oldest first
        self._groups: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._count = 0
        self._counting = threading.Lock()
        programs = folder / "bin"
        programs.mkdir(parents=True)
        for name in (*_NOTHING, "utvm"):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -m utvm "$@"\n' if name == "utvm" else "#!/bin/sh\n")
            program.chmod(0o755)

    def _prepare(self, project: Path, **variables: str) -> tuple[Path, dict[str, str]]:
        with self._counting:
            self._count += 1
            work = self._folder / f"job-{self._count}"
        shutil.copytree(project, work / "project", ignore=shutil.ignore_patterns(".git", "build"))
        (work / "home").mkdir()
        path = f"{self._folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI_", "XDG_"))
        }
        return work, {**inherited, "PATH": path, "HOME": str(work / "home"), **variables}

    def _restore(self, work: Path, environment: Mapping[str, str], branch: str, prefix: str) -> bool:
        newest = [saved for (owner, key), saved in self._caches.items() if owner == branch and key.startswith(prefix)]
        for saved in newest[-1:]:
            shutil.copytree(saved / "project", work / "project", dirs_exist_ok=True)
            shutil.copytree(saved / "home", environment["HOME"], dirs_exist_ok=True)
        return bool(newest)

    def _save(self, work: Path, branch: str, key: str, paths: list[str]) -> None:
        saved = self._folder / f"cache-{work.name}"
        for name in ("project", "home"):
            (saved / name).mkdir(parents=True)
        for path in paths:
            folder, name = ("home", path[2:]) if path.startswith("~/") else ("project", path)
            source, target = work / folder / name, saved / folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            elif source.exists():
                shutil.copy(source, target)
        self._caches.pop((branch, key), None)  # The newest entry is the last.
        self._caches[branch, key] = saved

    def github(self, project: Path, commit: str, event: str = "schedule", base: str = "") -> Job:
        """Run a job; for a pull request, give its base: it has a branch of its own."""
        workflow = yaml.safe_load((project / ".github/workflows/hil.yaml").read_text())
        branch = "refs/pull/1/merge" if base else MAIN
        summary = {"GITHUB_STEP_SUMMARY": "summary.md", "GITHUB_REPOSITORY": "a/b", "GITHUB_RUN_ID": commit[:8]}
        expressions = {
            "github.workflow": "hil",
            "github.ref": branch,
            "github.run_attempt": "1",
            "github.event.pull_request.base.sha": base,
            "vars.UTVM_WHEEL": "utvm.whl",
            "secrets.UTVM_WEBHOOK": self._webhook,
        }
        # docs.github.com, "Control the concurrency of workflows": a group runs one job at a time.
        with self._groups[_fill(workflow["concurrency"]["group"], expressions)]:
            work, environment = self._prepare(project, GITHUB_SHA=commit, GITHUB_SERVER_URL="https://x.org", **summary)
            expressions["github.run_id"] = work.name
            passed = True
            for step in workflow["jobs"]["hil"]["steps"]:
                condition = step.get("if", "")
                if (not passed and "always()" not in condition) or (
                    "schedule" in condition and (event == "schedule") != ("==" in condition)
                ):
                    continue
                action, settings = step.get("uses", ""), step.get("with", {})
                # A branch restores its own caches, or those of the default branch.
                if action.startswith("actions/cache/restore"):
                    any(self._restore(work, environment, name, settings["restore-keys"]) for name in (branch, MAIN))
                elif action.startswith("actions/cache/save"):
                    self._save(work, branch, _fill(settings["key"], expressions), settings["path"].split())
                elif "run" in step:
                    step_variables = {name: _fill(value, expressions) for name, value in step.get("env", {}).items()}
                    passed &= _run("bash -e", step["run"], work, {**environment, **step_variables})
            return Job(passed, (work / "project" / "summary.md").read_text(), work / "project")

    def gitlab(self, project: Path, commit: str, event: str = "schedule", base: str = "") -> Job:
        """Run a job; for a merge request, give its base: it has a branch of its own."""
        job: dict[str, Any] = yaml.safe_load((project / ".gitlab-ci.yml").read_text())["hil"]
        branch = "request" if base else MAIN
        variables = {
            "CI_PIPELINE_SOURCE": event,
            "CI_COMMIT_SHA": commit,
            "CI_COMMIT_REF_SLUG": branch,
            "CI_DEFAULT_BRANCH": MAIN,
            "CI_JOB_URL": f"https://x.org/{commit[:8]}",
            "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
            "UTVM_WHEEL": "utvm.whl",
            "UTVM_WEBHOOK": self._webhook,
        }
        # docs.gitlab.com, "Resource group": a group runs one job at a time.
        with self._groups[_expand(job["resource_group"], variables)]:
            work, environment = self._prepare(project, **variables)
            variables |= {"CI_PROJECT_DIR": str(work / "project")}
            environment |= {name: _expand(value, variables) for name, value in job["variables"].items()}
            cache = job["cache"]
            keys = [_expand(key, variables) for key in (cache["key"], *cache["fallback_keys"])]
            any(self._restore(work, environment, "", key) for key in keys)
            passed = _run("bash -e", "\n".join([*job["before_script"], *job["script"]]), work, environment)
            _run("bash -e", "\n".join(job["after_script"]), work, environment)
            self._save(work, "", keys[0], cache["paths"])
            return Job(passed, (work / "project/build/reports/summary.md").read_text(), work / "project")


def _run(shell: str, script: str, work: Path, environment: Mapping[str, str]) -> bool:
    command = [*shell.split(), "-c", script]
    return subprocess.run(command, cwd=work / "project", env=environment, check=False, timeout=600).returncode == 0


def _fill(text: str, expressions: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{ (.+?) \}\}", lambda match: expressions[match[1]], text)


def _expand(text: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda match: variables[match[1]], text)
