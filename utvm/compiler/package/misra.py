# SPDX-License-Identifier: Apache-2.0
"""Count cppcheck's MISRA C:2012 findings; ``docs/misra.yaml`` has the reasons. Rule texts belong to MISRA."""

import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from utvm import errors, runtime
from utvm.base.process import run_tool
from utvm.base.storage.config import Record, load_yaml, read_yaml
from utvm.compiler.library import Library
from utvm.paths import DATA

REASONS = DATA / "docs" / "misra.yaml"
_OPTIONS = read_yaml(Path(__file__).with_suffix(".yaml"))[0]["options"]
_TIMEOUT_S = 1800.0
_FINDING = re.compile(r"^(?P<id>[A-Za-z0-9.-]+)\t(?P<place>.*)$", re.MULTILINE)
_RULE = "misra-c2012-"
# Messages of cppcheck if it could not read a file; findings would be missing silently.
_TROUBLE = ("internalError", "syntaxError", "preprocessorErrorDirective", "cppcheckError", "unknownMacro")


class Reasons(Record):
    """Content of ``docs/misra.yaml``."""

    mandatory: tuple[str, ...]
    left: dict[str, str]

    def list_unexplained(self, counts: Mapping[str, int]) -> list[str]:
        """Return the rules with findings that are mandatory, or without a reason in the file."""
        return [rule for rule in counts if rule in self.mandatory or not self.left.get(rule, "").strip()]


def reasons(path: Path = REASONS) -> Reasons:
    return load_yaml(path, Reasons)


def misra_findings(
    paths: Sequence[Path], include: Sequence[Path] = (), defines: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Return MISRA C:2012 findings: rule, such as ``11.3``, to ``file:line`` of each."""
    with tempfile.TemporaryDirectory() as work:
        output = run_tool(
            [
                "cppcheck",
                *_OPTIONS,
                # Without it, the addon writes its files beside the sources.
                f"--cppcheck-build-dir={work}",
                f"--output-file={work}/findings",
                *(f"-I{folder}" for folder in include),
                *(f"-D{macro}" for macro in defines),
                *paths,
            ],
            timeout=_TIMEOUT_S,
            error=errors.ToolchainError,
            hint="sudo apt-get install cppcheck",
        )
        text = output + (Path(work) / "findings").read_text(encoding="utf-8")
    findings: dict[str, list[str]] = {}
    for finding in _FINDING.finditer(text):
        if finding["id"] in _TROUBLE:
            raise errors.ToolchainError(f"cppcheck cannot read {finding['place']}: {finding['id']}")
        if finding["id"].startswith(_RULE):
            findings.setdefault(finding["id"].removeprefix(_RULE), []).append(finding["place"])
    return {rule: findings[rule] for rule in sorted(findings, key=_by_number)}


def misra_counts(paths: Sequence[Path], include: Sequence[Path] = ()) -> dict[str, int]:
    return {rule: len(places) for rule, places in misra_findings(paths, include).items()}


def library_counts(library: Library) -> dict[str, int]:
    """Count findings per rule in a library. Large arrays of weights make cppcheck take minutes."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in library.sources.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        return misra_counts(sorted(Path(folder).glob("*.c")), [Path(folder)])


def runtime_counts() -> dict[str, int]:
    """Count findings per rule in the C runtime for boards, ports excluded."""
    return {rule: len(places) for rule, places in runtime_findings().items()}


def runtime_findings(ports: Mapping[str, Sequence[Path]] | None = None, every: int = 1) -> dict[str, set[str]]:
    """Return findings per rule in all images and ports; without ports, for one architecture.

    Args:
        every: check only every N-th image, to save time.
    """
    findings: dict[str, set[str]] = {}
    portable = sorted(runtime.PORTABLE.glob("*.c"))
    for architecture, own in (ports or {"cortex_m": ()}).items():
        images = runtime.images(architecture)[::-every]
        boards: list[list[Path]] = [[port] for port in own] or [[]]
        for index in range(max(len(images), len(boards))):
            (executor, pipe), port = images[index % len(images)], boards[index % len(boards)]
            files = [path for path in runtime.sources(architecture, executor, pipe) if path.suffix == ".c"]
            for rule, places in misra_findings(
                [*files, *portable, *port] if index < len(images) else port,
                runtime.include(architecture, executor, pipe),
                runtime.defines(executor, pipe),
            ).items():
                findings.setdefault(rule, set()).update(places)
    return findings


def total(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    added: Counter[str] = Counter()
    for count in counts:
        added.update(count)
    return {rule: added[rule] for rule in sorted(added, key=_by_number)}


def _by_number(rule: str) -> tuple[int, ...]:
    return tuple(int(part) for part in rule.split("."))
