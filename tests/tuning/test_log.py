# SPDX-License-Identifier: Apache-2.0
"""The log of tuning: what is taken from it, and what is refused."""

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
    plain = {"layer": "a", "kind": "trace", "choice": "[]", "unit": "instructions", "counts": (7,)}
    return LogEntry.model_validate({**ORIGIN.model_dump(), **plain, **changed})


def test_a_log_is_read_as_it_was_written_and_as_its_schema_says(tmp_path: Path) -> None:
    written = [entry(), entry(kind="kernel", choice="plain", counts=(9, 3, 5)), entry(counts=(), error="no")]
    log = tmp_path / "log"
    for each in written:
        append(log, [each])
    assert read_log(log, ORIGIN) == written
    for line in log.read_text().splitlines():
        jsonschema.validate(json.loads(line), SCHEMA)
    assert [each.count for each in written] == [7, 5, None]


@pytest.mark.parametrize(
    ("entries", "taken"),
    [
        # The least count is taken, and nothing where there is none less than without tuning.
        ([entry(kind="default", choice=""), entry(choice="x", counts=(6,)), entry(choice="y", counts=(5,))], "y"),
        ([entry(kind="default", choice=""), entry(choice="x", counts=(7,))], ""),
        # What could not be taken is not, and the last time that something was measured counts.
        ([entry(choice="x", counts=(), error="other bits"), entry(choice="y", counts=(9,))], "y"),
        ([entry(choice="x", counts=(1,)), entry(choice="y"), entry(choice="x", counts=(9,))], "y"),
        # A chip knows better than a virtual board.
        ([entry(choice="x", counts=(1,)), entry(choice="y", unit="cycles", counts=(900,))], "y"),
    ],
)
def test_the_best_of_a_log_is_taken(entries: list[LogEntry], taken: str) -> None:
    assert dict(tuned_target(Target(), entries).tuned) == ({"a": taken} if taken else {})


@pytest.mark.parametrize(
    ("line", "said"),
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
def test_damaged_or_foreign_trace_line_is_refused_by_number(tmp_path: Path, line: str, said: str) -> None:
    log = tmp_path / "log"
    append(log, [entry()])
    log.write_text(f"{log.read_text()}{line}\n")
    with pytest.raises(ConfigError, match=r"line 2") as refused:
        read_log(log, ORIGIN)
    assert said in refused.value.message
    assert "\n" not in refused.value.message


def test_what_is_no_text_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe\xff")
    for path in (tmp_path / "log", tmp_path, tmp_path / "none", Path("/dev/zero")):
        with pytest.raises(ConfigError):
            read_log(path, ORIGIN)
