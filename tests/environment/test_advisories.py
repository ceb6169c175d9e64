# SPDX-License-Identifier: Apache-2.0
"""Locked packages held against advisories, as OSV and Debian's security tracker publish them."""

import dataclasses
import datetime
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import inv
from tests.environment.lock_maker import deb
from tests.pages.samples import a_night, run_that_passed
from utvm.environment import audit as accepted
from utvm.environment.audit import debian_findings, python_findings, report_on
from utvm.environment.debian import load_lock
from utvm.errors import ConfigError
from utvm.hil.nightly import report

_NOW = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.123456Z")


def _advisory(name: str, events: list[dict[str, str]], **other: Any) -> dict[str, Any]:
    """An entry as the export has them, with what we do not read too."""
    affected = {
        "package": {"name": name, "ecosystem": "PyPI", "purl": f"pkg:pypi/{name}"},
        "ranges": [
            {"type": "ECOSYSTEM", "events": events},
            {"type": "GIT", "repo": "https://x.example/y", "events": [{"introduced": "0"}, {"fixed": "8f3c"}]},
        ],
        "versions": other.pop("versions", []),
        "ecosystem_specific": {"imports": []},
    }
    return {
        "schema_version": "1.7.3",
        "id": other.pop("id", "PYSEC-2026-1"),
        "published": "2026-01-02T00:00:00Z",
        "modified": _NOW,
        "details": "[bold]words[/bold]",
        "affected": [affected],
        **other,
    }


def _known(folder: Path, *entries: dict[str, Any], **locked: str) -> list[tuple[str, str, str]]:
    for number, entry in enumerate(entries):
        (folder / f"{number}.json").write_text(json.dumps(entry))
    found, _, count = python_findings(folder, {name: {version} for name, version in locked.items()})
    assert count == len(entries)
    return [(each.package, each.advisory, each.fixed) for each in found]


@pytest.mark.parametrize(
    ("events", "version", "affected"),
    [
        # Versions as PEP 440 orders them: 1.10 is behind 1.9, a candidate before its release, a post behind it.
        ([{"introduced": "0"}, {"fixed": "1.10"}], "1.9", True),
        ([{"introduced": "0"}, {"fixed": "1.10"}], "1.10", False),
        ([{"introduced": "0"}, {"fixed": "1.10"}], "1.10rc1", True),
        ([{"introduced": "1.0"}, {"fixed": "1.10"}], "1.0.dev1", False),
        ([{"introduced": "0"}, {"fixed": "0.27.0"}], "0.27.0.post1", False),
        ([{"introduced": "0"}, {"last_affected": "2.0"}], "2.0", True),
        ([{"introduced": "0"}, {"last_affected": "2.0"}], "2.0.1", False),
        ([{"introduced": "0"}], "99", True),
        # Two lines of versions, told in any order.
        ([{"introduced": "2.0"}, {"fixed": "2.3"}, {"introduced": "0"}, {"fixed": "1.5"}], "1.7", False),
        ([{"introduced": "2.0"}, {"fixed": "2.3"}, {"introduced": "0"}, {"fixed": "1.5"}], "2.2", True),
        ([{"introduced": "0"}, {"limit": "1.5"}], "1.5", False),
        ([{"introduced": "0"}, {"limit": "1.5"}], "1.4", True),
    ],
)
def test_a_version_is_affected_as_the_schema_evaluates_it(
    events: list[dict[str, str]], version: str, affected: bool, tmp_path: Path
) -> None:
    assert bool(_known(tmp_path, _advisory("one", events), one=version)) is affected


def test_packages_are_found_by_normal_name_and_version(tmp_path: Path) -> None:
    listed = _advisory("Flat_Buffers", [{"introduced": "9"}], versions=["nonsense", "25.12.19.0"])
    assert _known(tmp_path, listed, **{"flat-buffers": "25.12.19"}) == [("flat-buffers", "PYSEC-2026-1", "")]


def test_duplicate_advisories_merge_and_withdrawn_ones_go(tmp_path: Path) -> None:
    events = [{"introduced": "0"}, {"fixed": "2.1"}, {"introduced": "3"}, {"fixed": "3.1"}]
    first = _advisory("one", events, id="GHSA-aaaa", aliases=["CVE-2026-7"])
    again = _advisory("one", events, id="PYSEC-2026-3", aliases=["CVE-2026-7", "GHSA-aaaa"])
    gone = _advisory("one", events, id="PYSEC-2026-4", withdrawn=_NOW)
    assert _known(tmp_path, first, again, gone, one="2.0") == [("one", "GHSA-aaaa CVE-2026-7", "2.1")]


@pytest.mark.parametrize(
    ("status", "version", "applies"),
    [
        # Versions as Debian orders them: ~ is before the end, an epoch before everything, u10 behind u9.
        ({"status": "resolved", "fixed_version": "1.2-3+deb12u10"}, "1.2-3+deb12u9", True),
        ({"status": "resolved", "fixed_version": "1.2-3+deb12u10"}, "1.2-3+deb12u10+b1", False),
        ({"status": "resolved", "fixed_version": "1.2~rc1-1"}, "1.2-1", False),
        ({"status": "resolved", "fixed_version": "1:0.1-1"}, "9.9-1", True),
        ({"status": "resolved", "fixed_version": "0"}, "0~1", False),
        ({"status": "open", "nodsa": "Minor issue", "nodsa_reason": ""}, "9.9-1", True),
        ({"status": "open", "urgency": "unimportant"}, "9.9-1", False),
        ({"status": "undetermined"}, "9.9-1", False),
    ],
)
def test_a_debian_package_is_judged_by_its_source_and_release(
    status: dict[str, str], version: str, applies: bool, tmp_path: Path
) -> None:
    states = {
        "bookworm": {"repositories": {"bookworm": "1.2-3"}, "urgency": "not yet assigned", **status},
        "trixie": {"status": "open", "repositories": {"trixie": "2"}, "urgency": "high"},
    }
    # Nothing but bookworm's counts, and nothing but the source's own.
    content = {
        "one": {"CVE-2026-1": {"description": "x", "scope": "remote", "releases": states}},
        "onemore": {"CVE-2026-2": {"releases": {"bookworm": {"status": "open"}}}},
    }
    file = tmp_path / "debian.json"
    file.write_text(json.dumps(content))
    # libone1 is made of one, which its folder on the mirror says.
    package = deb("libone1", version).model_copy(update={"file": "pool/main/o/one/libone1_1_amd64.deb"})
    known = debian_findings(file, [package], "bookworm")
    assert [(each.package, each.advisory) for each in known.findings] == [("libone1", "CVE-2026-1")] * applies
    assert known.unimportant == (status.get("urgency") == "unimportant")
    assert known.undetermined == (status["status"] == "undetermined")


def test_the_lock_says_what_packages_are_made_from() -> None:
    """As Debian's own indices have it: a version of its own, a rebuild, a kernel that was signed."""
    lock = load_lock()
    made = {each.name: each.source_package for each in (*lock.packages, *lock.machine)}
    assert made["gcc"] == ("gcc-defaults", "1.203")
    assert made["libssl3"][0] == "openssl"
    kernels = [source_package for name, source_package in made.items() if name.startswith("linux-image")]
    assert [name for name, _ in kernels] == ["linux"] * 2
    assert all("-" in version and "+b" not in version for _, version in made.values() if "-" in version)
    assert made["bash"] == ("bash", "5.2.15-2")


def _folder(folder: Path, *entries: dict[str, Any], **states: dict[str, str]) -> Path:
    """A folder of advisories as a night's job fetches it: the export's zip, and the tracker's file."""
    (folder / "osv").mkdir(parents=True)
    with zipfile.ZipFile(folder / "osv" / "all.zip", "w") as archive:
        for entry in entries:
            archive.writestr(f"{entry['id']}.json", json.dumps(entry))
    content = {
        name: {"CVE-2026-9": {"releases": {"bookworm": {"urgency": "low", **state}}}} for name, state in states.items()
    }
    (folder / "debian.json").write_text(json.dumps(content))
    return folder


_QUIET = _advisory("no-such-package", [{"introduced": "0"}])


def test_nothing_known_is_said_with_what_was_looked_at(tmp_path: Path) -> None:
    folder = _folder(tmp_path, _QUIET, openssl={"status": "resolved", "fixed_version": "0"})
    done = inv("env.audit", "--advisories", folder)
    # On a busy computer it says how far it is.
    assert (done.returncode, [line for line in done.stderr.splitlines() if "reading advisories: " not in line]) == (
        0,
        [],
    )
    assert "1 of their sources are tracked for bookworm" in done.stdout
    assert "1 advisories, the newest of " in done.stdout
    assert done.stdout.splitlines()[-1] == "no known advisory applies"


def test_what_applies_is_listed_and_is_exit_code_1(tmp_path: Path) -> None:
    idna = _advisory("IDNA", [{"introduced": "0"}, {"fixed": "99"}], id="[red]GHSA", aliases=["CVE-2026-5"])
    done = inv("env.audit", "--advisories", _folder(tmp_path, idna, bash={"status": "open"}), COLUMNS="150")
    assert done.returncode == 1
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "Debian bash 5.2.15-2 CVE-2026-9 -" in rows
    assert any(row.startswith("Python idna ") and row.endswith("[red]GHSA CVE-2026-5 99") for row in rows)
    assert rows[-1] == "advisories that apply: 2"


def _accepting(folder: Path, *entries: tuple[str, str, str]) -> Path:
    """A file that accepts advisories: number, package, last day."""
    lines = [
        f"  - {{advisory: {number}, package: {package}, reason: nobody calls it, until: {until}}}"
        for number, package, until in entries
    ]
    file = folder / "accepted.yaml"
    file.write_text("\n".join(("accepted:", *lines)), encoding="utf-8")
    return file


def test_accepted_advisory_ends_on_its_day(tmp_path: Path) -> None:
    idna = _advisory("IDNA", [{"introduced": "0"}, {"fixed": "99"}], id="GHSA-x", aliases=["CVE-2026-5"])
    folder = _folder(tmp_path / "known", idna, openssl={"status": "open"}, bash={"status": "open"})
    days = {-1: "2020-01-31", 1: "2999-01-31"}
    # By another of its numbers; one of the packages that Debian makes of openssl; one whose day is over; one that
    # is another package's.
    entries = [("CVE-2026-5", "idna", days[1]), ("CVE-2026-9", "libssl3", days[1])]
    entries += [("CVE-2026-9", "bash", days[-1]), ("CVE-2026-5", "numpy", days[1])]
    done = inv("env.audit", "--advisories", folder, "--accepted", _accepting(tmp_path, *entries), COLUMNS="200")
    assert done.returncode == 1
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert [row for row in rows if row.startswith(("Debian ", "Python "))] == ["Debian bash 5.2.15-2 CVE-2026-9 -"]
    (ours,) = [row for row in rows if row.startswith("accepted until 2999-01-31: idna ")]
    assert ours.endswith("GHSA-x CVE-2026-5: nobody calls it")
    assert sum(row.startswith("accepted until 2999-01-31: ") and "libssl3" in row for row in rows) == 1
    assert "was accepted until 2020-01-31: bash, CVE-2026-9: nobody calls it" in rows
    assert "accepted, but does not apply any more: numpy, CVE-2026-5" in rows
    assert rows[-1] == "advisories that apply: 1, 2 accepted"
    entries[2] = ("CVE-2026-9", "bash", days[1])
    done = inv("env.audit", "--advisories", folder, "--accepted", _accepting(tmp_path, *entries), COLUMNS="200")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "no known advisory applies, 3 accepted")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{advisory: CVE-1, package: idna, until: 2027-01-31}", "accepted.0.reason"),
        ("{advisory: CVE-1, package: idna, reason: ' ', until: 2027-01-31}", "accepted.0.reason"),
        ("{advisory: CVE-1, package: idna, reason: why}", "accepted.0.until"),
        ("{advisory: CVE-1, package: idna, reason: why, until: soon}", "accepted.0.until"),
    ],
)
def test_nothing_is_accepted_without_a_reason_and_an_end(entry: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "accepted.yaml"
    file.write_text(f"accepted:\n  - {entry}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        accepted.load_acceptances(file)


def _spoil(folder: Path, file: str, content: bytes | None) -> None:
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("osv/all.zip", None, "has no advisory of a Python package"),
        ("osv/all.zip", b"PK\3\4", "all.zip: cannot be read"),
        ("osv/x.json", b'{"id": "X"', "x.json: not valid JSON"),
        ("osv/x.json", b'{"id": "X", "modified": "today"}', "x.json: not a valid advisory"),
        ("osv/x.json", json.dumps(_advisory("one", [{"introduced": "?"}])).encode(), "not a valid advisory: Invalid"),
        ("debian.json", None, "debian.json: cannot be read: No such file"),
        ("debian.json", b"{}", "has no entry for bookworm"),
        ("debian.json", b"[" * 100_000, "debian.json: not valid JSON"),
        ("debian.json", b'{"bash": {"CVE-1": {"releases": {"bookworm": {}}}}}', "invalid entry of bash"),
        ("debian.json", b'{"bash": {"C": {"releases": {"bookworm": {"status": "new"}}}}}', "'new' is unknown"),
    ],
)
def test_what_cannot_be_read_is_never_taken_for_nothing(
    file: str, content: bytes | None, said: str, tmp_path: Path
) -> None:
    folder = _folder(tmp_path, _QUIET, bash={"status": "resolved", "fixed_version": "0"})
    (folder / "osv" / "x.json").write_text(json.dumps(_QUIET))
    _spoil(folder, file, content)
    if said.startswith("has no"):
        (folder / "osv" / "x.json").unlink()
    lock = load_lock()
    with pytest.raises(ConfigError) as refused:
        python_findings(folder / "osv", {"one": {"1"}})
        debian_findings(folder / "debian.json", lock.packages, "bookworm")
    assert said in refused.value.message


@pytest.mark.slow
def test_no_data_and_old_data_end_without_an_answer(tmp_path: Path) -> None:
    nowhere = inv("env.audit", "--advisories", tmp_path / "nowhere")
    assert nowhere.returncode == 2
    assert "nowhere/osv: there is no such folder" in nowhere.stderr
    old = _folder(tmp_path / "old", _QUIET | {"modified": "2020-05-01T00:00:00Z"}, bash={"status": "open"})
    done = inv("env.audit", "--advisories", old)
    assert (done.returncode, "no known advisory" in done.stdout) == (3, False)
    assert "osv: is of 2020-05-01, " in done.stderr
    stale = _folder(tmp_path / "stale", _QUIET, bash={"status": "open"})
    os.utime(stale / "debian.json", (1_600_000_000, 1_600_000_000))
    done = inv("env.audit", "--advisories", stale)
    assert done.returncode == 3
    assert "debian.json: is of 2020-09-13, " in done.stderr
    assert inv("env.audit", "--advisories", stale, "--max-age", 99_999).returncode == 1


def test_nightly_report_names_advisories_and_gaps(tmp_path: Path) -> None:
    known = _advisory("idna", [{"introduced": "0"}], id="GHSA-<b>")
    audited = report_on(_folder(tmp_path, known, bash={"status": "open"}))
    night = dataclasses.replace(a_night((run_that_passed(), None)), advisories=audited)
    folder = report.write_report(night, tmp_path / "reports")
    content = json.loads((folder / "nightly.json").read_text())
    findings = {finding["package"]: finding["advisory"] for finding in content["advisories"]["findings"]}
    assert (findings["idna"], "bash" in findings) == ("GHSA-<b>", True)
    page = (folder / "index.html").read_text()
    assert "<h2>Advisories</h2>" in page and "<td>GHSA-&lt;b&gt;</td>" in page
    # They are no verdict on a board.
    assert content["exit_code"] == 0
    missing = report_on(tmp_path / "nowhere")
    assert "there is no such folder" in str(missing["problem"])
    page = report.render_html(dataclasses.replace(night, advisories=missing), tmp_path)
    assert "there is no such folder" in page
    assert "Advisories" not in report.render_html(dataclasses.replace(night, advisories=None), tmp_path)


@pytest.mark.slow
def test_a_night_looks_at_the_advisories_that_it_is_given(tmp_path: Path) -> None:
    boards = tmp_path / "boards.yaml"
    boards.write_text("boards: [{board: host, suites: [health]}]\n")
    folder = _folder(tmp_path, _QUIET, bash={"status": "open"})
    words = ("--config", boards, "--report-dir", tmp_path / "reports", "--advisories", folder)
    done = inv("nightly", *words)
    assert (done.returncode, "advisories: 1 apply to locked packages" in done.stdout) == (0, True), done.stdout
    content = json.loads((tmp_path / "reports" / "latest" / "nightly.json").read_text())
    assert [finding["package"] for finding in content["advisories"]["findings"]] == ["bash"]
