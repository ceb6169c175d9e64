# SPDX-License-Identifier: Apache-2.0
"""One step of ``history.bisect``, which ``git bisect run`` starts in a worktree: 0 good, 1 bad, 125 no answer.

It is a program that needs nothing but Python: the sources around it may be older than it.
"""

import json
import subprocess
import sys
from pathlib import Path


def answer(code: int, report: Path, name: str, figure: str, good: str) -> int:
    """Return what git is told of a run.

    Args:
        code: what ``hil`` ended with.
        name: the test that was asked about, as in reports; or the model, with a figure.
        good: the figure's value as it was, in JSON.
    """
    if code not in (0, 1):
        return 125  # What lies there may be the report of a step before.
    try:
        content = json.loads(report.read_text(encoding="utf-8"))
        if not figure:
            ended = [each["outcome"] for each in content["tests"] if each["id"] == name]
            return 1 if "failed" in ended else 0 if "passed" in ended else 125
        values = [each.get(figure) for each in content["models"] if each["name"] == name]
    except (OSError, ValueError, KeyError):
        return 125
    if not values or values[0] is None:
        return 125
    wanted = json.loads(good)
    # Of a hash, the history keeps the beginning.
    same = str(values[0]).startswith(wanted) if isinstance(wanted, str) else values[0] == wanted
    return 0 if same else 1


if __name__ == "__main__":
    _reports, _name, _figure, _good, *_command = sys.argv[1:]
    _latest = Path(_reports) / "latest"
    _before = _latest.resolve()
    _ended = subprocess.run(_command, check=False).returncode
    if _latest.resolve() == _before:
        sys.exit(125)  # Whatever its exit code: it has written no report.
    sys.exit(answer(_ended, _latest / "report.json", _name, _figure, _good))
