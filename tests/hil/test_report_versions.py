# SPDX-License-Identifier: Apache-2.0
"""Reports of every version: validated by their schemas, and read by one reader."""

import contextlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from utvm.errors import ConfigError
from utvm.hil import schemas
from utvm.hil.results import case_id
from utvm.hil.schemas import MAX_BYTES, read_report
from utvm.paths import ROOT

# Written by runs, for version 1 in several shapes; names of people and computers are replaced.
SAMPLES = Path(__file__).parent / "samples"
_REPORTS = sorted(SAMPLES.glob("report-*.json"))


def _shape(value: Any) -> Any:
    """The keys of a report at all levels; of a list, those of its first entry."""
    if isinstance(value, dict):
        open_keys = ("tools", "values", "settings")
        return {key: key != "lease" and _shape(entry) for key, entry in value.items() if key not in open_keys}
    return [_shape(value[0])] if isinstance(value, list) and value else None


@pytest.mark.parametrize("sample", sorted(SAMPLES.iterdir()), ids=lambda path: str(path.stem))
def test_report_is_valid_by_its_schema(sample: Path) -> None:
    content = json.loads(sample.read_text())
    kind, version = sample.stem.split("-")[:2]
    assert content["schema_version"] == int(version)
    present = ROOT / "docs" / f"{kind}.schema.json"
    earlier = present.with_suffix(f".{version}.json")
    schema = json.loads((earlier if earlier.exists() else present).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(content, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**content, "schema_version": int(version) + 1}, schema)


def test_every_version_has_samples() -> None:
    for kind in ("report", "nightly"):
        versions = {path.stem.split("-")[1] for path in SAMPLES.glob(f"{kind}-*")}
        schema = json.loads((ROOT / "docs" / f"{kind}.schema.json").read_text())
        assert versions == {str(n + 1) for n in range(schema["properties"]["schema_version"]["const"])}


def test_all_versions_are_read_into_one_shape() -> None:
    (present,) = (path for path in _REPORTS if path.stem == "report-5-virtual")
    shape = _shape(read_report(present))
    for sample in _REPORTS:
        content = read_report(sample)
        keys = _shape(content)
        assert set(keys) == set(shape), sample
        for part in ("source", "board", "environment", "tests"):
            assert keys[part] == shape[part], (sample, part)
        units = {"instructions", "cycles", "ns"}
        for model in content["models"]:
            assert set(model) - units == set(shape["models"][0]) - units, sample


def test_missing_data_of_version_1_is_none() -> None:
    content = read_report(SAMPLES / "report-1-virtual.json")
    assert content["schema_version"] == 1
    assert content["source"] == {"commit": None, "dirty": None}
    assert (content["environment"]["lock"], content["environment"]["place"]["hostname"]) == (None, None)
    assert {model["id"] for model in content["models"]} == {None}
    earliest = read_report(SAMPLES / "report-1-earliest-process.json")
    assert earliest["environment"]["place"]["frozen"] is None
    assert earliest["environment"]["place"]["tools"]["unicorn"]
    assert earliest["trouble"] == ""


def test_unrun_and_uncounted_are_marked_in_all_versions(tmp_path: Path) -> None:
    content = json.loads((SAMPLES / "report-2-process.json").read_text())
    first, second, *_ = content["tests"]
    first |= {"outcome": "skipped", "message": "not run: interrupted before the end"}
    second |= {"outcome": "skipped", "message": "not on this board: it has no debug port"}
    content["models"][0]["ns"] = 0
    (tmp_path / "report.json").write_text(json.dumps(content | {"verdict": "interrupted", "exit_code": 3}))
    report = read_report(tmp_path / "report.json")
    assert [(test["outcome"], test["message"]) for test in report["tests"][:2]] == [
        ("not run", "interrupted before the end"),
        ("skipped", "not on this board: it has no debug port"),
    ]
    assert report["models"][0]["ns"] is None
    present = read_report(SAMPLES / "report-3-process.json")
    assert {test["outcome"] for test in present["tests"]} == {"passed", "skipped", "not run"}


def test_name_of_a_test_is_the_same_in_all_versions() -> None:
    known = {test["id"] for test in read_report(SAMPLES / "report-3-virtual.json")["tests"]}
    # All samples have the suites rpc and digits.
    for version in (1, 2):
        earlier = {test["id"] for test in read_report(SAMPLES / f"report-{version}-virtual.json")["tests"]}
        assert len(earlier) > 15
        assert earlier < known
    assert "digits::test_two_runs_agree_to_the_instruction[int8-graph]" in known


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ("hil_tests/test_digits.py::test_a[float]", "digits::test_a[float]"),
        ("../../elsewhere/test_digits.py::test_a[float]", "digits::test_a[float]"),
        ("test_digits.py::TestB::test_a[x/y::z]", "digits::TestB::test_a[x/y::z]"),
        ("hil_tests/test_broken.py", "broken"),
    ],
)
def test_name_of_a_test_does_not_depend_on_the_folder(node: str, name: str) -> None:
    assert case_id(node) == name


def test_counts_of_a_virtual_board_are_never_cycles() -> None:
    for sample in _REPORTS:
        content = read_report(sample)
        kind = content["board"]["kind"]
        unit = {"virtual": "instructions", "process": "ns"}[kind]
        for entry in content["statistics"]:
            assert "cycles" not in entry["values"], sample
            assert unit in entry["values"] or "of each operator" in entry["name"], sample


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not a report"),
        ("[]", "is not a report"),
        ("{}", "is not a report"),
        ('{"schema_version": 6}', "is a report of version 6, and this utvm reads versions 1, 2, 3, 4, 5"),
        ('{"schema_version": 3, "run_id": 7}', r"\$.*required"),
    ],
)
def test_error_about_another_file_is_clear(content: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=words):
        read_report(file)
    with pytest.raises(ConfigError, match="No such file"):
        read_report(tmp_path / "none.json")


def test_schemas_have_all_figures() -> None:
    for path in (schemas.REPORT, schemas.NIGHTLY):
        assert path.read_text() == schemas.schema_text(path), "run ./inv docs.site --pages"


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all entries of a report."""
    keys = list(value) if isinstance(value, dict) else list(range(min(len(value), 2)))
    paths = [(*path, key) for key in keys]
    deeper = [_paths(value[key], (*path, key)) for key in keys if isinstance(value[key], dict | list)]
    return paths + [inner for group in deeper for inner in group]


def _read_with_damage(folder: Path, sample: Path, choose: st.DataObject) -> None:
    content = json.loads(sample.read_text())
    *path, last = choose.draw(st.sampled_from(_paths(content)))
    entry = content
    for key in path:
        entry = entry[key]
    entry[last] = choose.draw(_ANYTHING)
    (folder / "report.json").write_text(json.dumps(content))
    with contextlib.suppress(ConfigError):
        read_report(folder / "report.json")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(_REPORTS), st.data())
def test_damaged_report_is_read_or_refused(tmp_path: Path, sample: Path, choose: st.DataObject) -> None:
    _read_with_damage(tmp_path, sample, choose)


@pytest.mark.nightly
@settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(_REPORTS), st.data())
def test_many_damaged_reports_are_read_or_refused(tmp_path: Path, sample: Path, choose: st.DataObject) -> None:
    _read_with_damage(tmp_path, sample, choose)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema_version": []}', '{"schema_version": {}}', "7", "{"])
def test_other_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(ConfigError, match=r"report\.json: is "):
        read_report(tmp_path / "report.json")


def test_large_file_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "report.json").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ConfigError, match="is longer than"):
        read_report(tmp_path / "report.json")
