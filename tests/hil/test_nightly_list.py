# SPDX-License-Identifier: Apache-2.0
"""The list of boards: errors are reported before anything starts."""

import shutil
from pathlib import Path

import pytest
import yaml

from tests.cli.running import inv
from utvm import boards
from utvm.errors import ConfigError
from utvm.hil import nightly
from utvm.paths import ROOT


def _list(folder: Path, text: str) -> Path:
    path = folder / "some.yaml"
    path.write_text(text)
    return path


def _boards(*entries: str) -> str:
    return "boards:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries)


def test_project_list_covers_all_boards_and_suites() -> None:
    jobs = nightly.load(nightly.default_list())
    assert {job.board.name for job in jobs} == set(boards.names())
    assert all(job.kind in ("virtual", "process") and job.entry.suites is None for job in jobs)


def test_workflow_has_a_job_for_each_board() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yaml").read_text())
    matrix = workflow["jobs"]["board"]["strategy"]["matrix"]["board"]
    assert matrix == list(dict.fromkeys(job.board.name for job in nightly.load(nightly.default_list())))


def test_defaults_of_an_entry(tmp_path: Path) -> None:
    (job,) = nightly.load(_list(tmp_path, _boards("board: stm32f746")))
    assert (job.kind, job.entry.serial, job.entry.suites) == ("auto", "", None)
    assert (job.entry.place, job.entry.minutes, job.label) == ("host", 60.0, "stm32f746")


def test_board_folder_is_relative_to_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(boards.load("host").directory, tmp_path / "mine" / "host")
    monkeypatch.chdir("/")
    (job,) = nightly.load(_list(tmp_path, _boards("board: ./mine/host")))
    assert job.choice.board == str(tmp_path / "mine" / "host")
    assert job.label == "host"


@pytest.mark.parametrize(
    ("entries", "labels"),
    [
        (
            ("board: stm32f746, kind: virtual", "board: stm32f746, kind: physical"),
            "stm32f746-virtual stm32f746-physical",
        ),
        (("board: stm32f746, serial: A", "board: stm32f746, serial: B"), "stm32f746-A stm32f746-B"),
        (("board: stm32f746, kind: virtual", "board: stm32f746, serial: B"), "stm32f746-virtual stm32f746-B"),
        (("board: host", "board: mps2-an500"), "host mps2-an500"),
        (
            ("board: pynq-z1, kind: virtual", "board: 'pynq-z1:memory=ddr', kind: virtual"),
            "pynq-z1-virtual pynq-z1-memory-ddr-virtual",
        ),
        (
            ("board: pynq-z1, kind: virtual", "board: pynq-z1, kind: virtual, place: docker"),
            "pynq-z1-virtual pynq-z1-virtual-docker",
        ),
        (("board: host", "board: host, place: docker"), "host host-docker"),
    ],
)
def test_distinct_boards_are_accepted(tmp_path: Path, entries: tuple[str, ...], labels: str) -> None:
    jobs = nightly.load(_list(tmp_path, _boards(*entries)))
    assert [job.label for job in jobs] == labels.split()


@pytest.mark.parametrize(
    "entries",
    [
        ("board: host", "board: host"),
        ("board: pynq-z1, kind: virtual", "board: 'pynq-z1:memory=ocm', kind: virtual"),
        ("board: pynq-z1, kind: physical", "board: 'pynq-z1:memory=ddr', kind: physical"),
        ("board: pynq-z1, kind: virtual", "board: 'pynq-z1:memory=ddr'"),
        ("board: stm32f746, kind: virtual", "board: stm32f746, kind: virtual, suites: [flash]"),
        ("board: stm32f746, kind: physical", "board: stm32f746, kind: physical"),
        ("board: stm32f746, kind: physical", "board: stm32f746, serial: A"),
        ("board: stm32f746, serial: A", "board: stm32f746, kind: physical, serial: A"),
        ("board: stm32f746", "board: stm32f746, kind: virtual"),
        ("board: stm32f746", "board: stm32f746, serial: A"),
        ("board: stm32f746, serial: A", "board: stm32f746, serial: A, place: docker"),
        ("board: stm32f746", "board: stm32f746, place: docker"),
    ],
)
def test_possibly_equal_boards_are_refused(tmp_path: Path, entries: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"some\.yaml: boards\.0 and boards\.1 may be the same board") as caught:
        nightly.load(_list(tmp_path, _boards(*entries)))
    assert "serial" in caught.value.hint


def test_one_probe_is_one_board_under_any_name(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(boards.load("stm32f746").directory, other)
    file = other / "board.yaml"
    file.write_text(file.read_text().replace("name: stm32f746", "name: other"))
    with pytest.raises(ConfigError, match="may be the same board"):
        nightly.load(_list(tmp_path, _boards("board: stm32f746, serial: A", "board: ./other, serial: A")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# nothing\n", "expected keys and values, found nothing"),
        ("- {board: host}\n", "expected keys and values, found list"),
        ("boards: [", "is not valid YAML"),
        ("boards: []\n", "boards: .*at least 1 item"),
        ("boards: host\n", "boards: .*valid tuple"),
        ("boards: [{board: host}]\nwhen: night\n", "when: Extra inputs are not permitted"),
        (_boards("kind: virtual"), r"boards\.0\.board: Field required"),
        (_boards("board: host, colour: red"), r"boards\.0\.colour: Extra inputs are not permitted"),
        (_boards("board: host", "board: no-such"), r"boards\.1: there is no board 'no-such'"),
        (_boards("board: ./no-such"), r"boards\.0: .*board\.yaml: is missing"),
        (
            _boards("board: host, suites: [flesh]"),
            r"boards\.0\.suites: there is no suite 'flesh'; did you mean flash\? suites: .*flash",
        ),
        (_boards("board: host, suites: []"), r"boards\.0\.suites: .*at least 1 item"),
        (_boards("board: host, place: container"), r"boards\.0\.place: .*'host', 'docker', 'vm' or 'farm'"),
        (_boards("board: stm32f746, kind: real"), r"boards\.0\.kind: .*'auto', 'virtual' or 'physical'"),
        (_boards("board: pynq-z1, kind: virtual, serial: A"), r"boards\.0: --serial names a physical board"),
        (_boards("board: host, kind: virtual"), r"boards\.0: host is a process"),
        (_boards("board: mps2-an500, kind: physical"), r"boards\.0: mps2-an500 is emulated"),
        (_boards("board: host, minutes: 0"), r"boards\.0\.minutes: .*greater than 0"),
    ],
)
def test_wrong_list_is_refused_with_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"some\.yaml: {message}") as caught:
        nightly.load(_list(tmp_path, text))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nightly", "--config", "no-such.yaml"), "no-such.yaml: cannot be read: there is no such file"),
        (("nightly", "--only", "stm32f746,stm32f747"), "the list has no board 'stm32f747'"),
        (("nightly", "--jobs=-1"), "--jobs is -1"),
        (("hil", "--board=stm32f746", "--jobs=-1"), "--jobs is -1"),
    ],
)
def test_usage_error_starts_nothing(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    completed = inv(*words, "--report-dir", tmp_path / "reports")
    assert completed.returncode == 2
    assert f"error: {message}" in completed.stderr
    assert "hint:" in completed.stderr
    assert "Traceback" not in completed.stderr + completed.stdout
    assert not (tmp_path / "reports").exists()
