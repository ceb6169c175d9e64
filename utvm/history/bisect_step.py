# SPDX-License-Identifier: Apache-2.0
"""One step of ``history.bisect``, started by ``git bisect run`` in a worktree: 0 good, 1 bad, 125 skip.

This program needs only Python: the sources around it may be of an older commit.
"""

import json
import subprocess
import sys
from pathlib import Path


def judge(code: int, report: Path, name: str, figure: str, good: str) -> int:
    """Return the exit status of a step.

    Args:
        name: the test, as in reports; the model, if ``figure`` is given.
    """
    if code not in (0, 1):
        return 125  # The report may be that of an earlier step.
    try:
        content = json.loads(report.read_text(encoding="utf-8"))
        if not figure:
            outcomes = [test["outcome"] for test in content["tests"] if test["id"] == name]
            return 1 if "failed" in outcomes else 0 if "passed" in outcomes else 125
        values = [model.get(figure) for model in content["models"] if model["name"] == name]
    except (OSError, ValueError, KeyError):
        return 125
    if not values or values[0] is None:
        return 125
    expected = json.loads(good)
    # The history stores only the beginning of a hash.
    same = str(values[0]).startswith(expected) if isinstance(expected, str) else values[0] == expected
    return 0 if same else 1


if __name__ == "__main__":
    _reports, _name, _figure, _good, *_command = sys.argv[1:]
    _latest = Path(_reports) / "latest"
    _before = _latest.resolve()
    _code = subprocess.run(_command, check=False).returncode
    if _latest.resolve() == _before:
        sys.exit(125)  # No report was written, whatever the exit code is.
    sys.exit(judge(_code, _latest / "report.json", _name, _figure, _good))
