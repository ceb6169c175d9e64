# SPDX-License-Identifier: Apache-2.0
"""The tuning log: choice of the best entry, and refusal of damaged files."""

import json
from pathlib import Path

import jsonschema
import pytest

from utvm import boards
from utvm.compiler import Target
from utvm.errors import ConfigError
from utvm.paths import ROOT
from utvm.tuning.log import LogEntry, append, origin_of, read_log, tuned_target

SCHEMA = json.loads((ROOT / "docs" / "tuning.schema.json").read_text())
ORIGIN = origin_of(boards.load("mps2-an500"))


def entry(**changed: object) -> LogEntry:
    defaults = {"layer": "a", "kind": "trace", "choice": "[]", "unit": "instructions", "counts": (7,)}
    return LogEntry.model_validate({**ORIGIN.model_dump(), **defaults, **changed})


def test_log_round_trips_and_follows_its_schema(tmp_path: Path) -> None:
    entries = [entry(), entry(kind="kernel", choice="plain", counts=(9, 3, 5)), entry(counts=(), error="no")]
    log = tmp_path / "log"
    for item in entries:
        append(log, [item])
    assert read_log(log, ORIGIN) == entries
    for line in log.read_text().splitlines():
        jsonschema.validate(json.loads(line), SCHEMA)
    assert [item.count for item in entries] == [7, 5, None]


@pytest.mark.parametrize(
    ("entries", "choice"),
    [
        # The smallest count wins; nothing is chosen if tuning does not beat the default.
        ([entry(kind="default", choice=""), entry(choice="x", counts=(6,)), entry(choice="y", counts=(5,))], "y"),
        ([entry(kind="default", choice=""), entry(choice="x", counts=(7,))], ""),
        # Failed candidates are never chosen, and the last measurement of a choice counts.
        ([entry(choice="x", counts=(), error="other bits"), entry(choice="y", counts=(9,))], "y"),
        ([entry(choice="x", counts=(1,)), entry(choice="y"), entry(choice="x", counts=(9,))], "y"),
        # A chip's cycles have priority over a virtual board's instructions.
        ([entry(choice="x", counts=(1,)), entry(choice="y", unit="cycles", counts=(900,))], "y"),
    ],
)
def test_best_entry_is_chosen(entries: list[LogEntry], choice: str) -> None:
    assert dict(tuned_target(Target(), entries).tuned) == ({"a": choice} if choice else {})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is damaged"),
        ("[" * 100_000, "line 2 is damaged"),
        (entry().model_dump_json()[:-1], "line 2 is damaged"),
        (json.dumps(json.loads(entry().model_dump_json()) | {"counts": [-1]}), "counts.0"),
        (json.dumps(json.loads(entry().model_dump_json()) | {"more": 1}), "more"),
        (json.dumps(json.loads(entry().model_dump_json()) | {"version": 2}), "version"),
        (entry(core="cortex-m3").model_dump_json(), "with core cortex-m3, and this is cortex-m7"),
        (entry(tvm="0.1").model_dump_json(), "with tvm 0.1"),
        (entry(toolchain="gcc 1").model_dump_json(), "with toolchain gcc 1"),
        ("\x00", "line 2 is damaged"),
    ],
)
def test_damaged_or_foreign_trace_line_is_refused_by_number(tmp_path: Path, line: str, message: str) -> None:
    log = tmp_path / "log"
    append(log, [entry()])
    log.write_text(f"{log.read_text()}{line}\n")
    with pytest.raises(ConfigError, match=r"line 2") as refused:
        read_log(log, ORIGIN)
    assert message in refused.value.message
    assert "\n" not in refused.value.message


def test_unreadable_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe\xff")
    for path in (tmp_path / "log", tmp_path, tmp_path / "none", Path("/dev/zero")):
        with pytest.raises(ConfigError):
            read_log(path, ORIGIN)
