# SPDX-License-Identifier: Apache-2.0
"""Locked packages compared with advisories of OSV and Debian's security tracker."""

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
from tests.pages.samples import nightly_report_of, run_that_passed
from utvm.environment import audit as accepted
from utvm.environment.audit import debian_findings, python_findings, report_on
from utvm.environment.debian import load_lock
from utvm.errors import ConfigError
from utvm.hil.nightly import report

_NOW = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.123456Z")


def _advisory(name: str, events: list[dict[str, str]], **other: Any) -> dict[str, Any]:
    """An entry of OSV's export, with fields that we do not read."""
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


def _findings(folder: Path, *entries: dict[str, Any], **locked: str) -> list[tuple[str, str, str]]:
    for number, entry in enumerate(entries):
        (folder / f"{number}.json").write_text(json.dumps(entry))
    findings, _, count = python_findings(folder, {name: {version} for name, version in locked.items()})
    assert count == len(entries)
    return [(finding.package, finding.advisory, finding.fixed) for finding in findings]


@pytest.mark.parametrize(
    ("events", "version", "affected"),
    [
        # Versions in the order of PEP 440: 1.10 is after 1.9, a candidate before its release, a post-release after it.
        ([{"introduced": "0"}, {"fixed": "1.10"}], "1.9", True),
        ([{"introduced": "0"}, {"fixed": "1.10"}], "1.10", False),
        ([{"introduced": "0"}, {"fixed": "1.10"}], "1.10rc1", True),
        ([{"introduced": "1.0"}, {"fixed": "1.10"}], "1.0.dev1", False),
        ([{"introduced": "0"}, {"fixed": "0.27.0"}], "0.27.0.post1", False),
        ([{"introduced": "0"}, {"last_affected": "2.0"}], "2.0", True),
        ([{"introduced": "0"}, {"last_affected": "2.0"}], "2.0.1", False),
        ([{"introduced": "0"}], "99", True),
        # Two ranges of versions, in any order.
        ([{"introduced": "2.0"}, {"fixed": "2.3"}, {"introduced": "0"}, {"fixed": "1.5"}], "1.7", False),
        ([{"introduced": "2.0"}, {"fixed": "2.3"}, {"introduced": "0"}, {"fixed": "1.5"}], "2.2", True),
        ([{"introduced": "0"}, {"limit": "1.5"}], "1.5", False),
        ([{"introduced": "0"}, {"limit": "1.5"}], "1.4", True),
    ],
)
def test_affected_versions_follow_the_schema(
    events: list[dict[str, str]], version: str, affected: bool, tmp_path: Path
) -> None:
    assert bool(_findings(tmp_path, _advisory("one", events), one=version)) is affected


def test_packages_are_found_by_normal_name_and_version(tmp_path: Path) -> None:
    advisory = _advisory("Flat_Buffers", [{"introduced": "9"}], versions=["nonsense", "25.12.19.0"])
    assert _findings(tmp_path, advisory, **{"flat-buffers": "25.12.19"}) == [("flat-buffers", "PYSEC-2026-1", "")]


def test_duplicate_advisories_merge_and_withdrawn_ones_go(tmp_path: Path) -> None:
    events = [{"introduced": "0"}, {"fixed": "2.1"}, {"introduced": "3"}, {"fixed": "3.1"}]
    first = _advisory("one", events, id="GHSA-aaaa", aliases=["CVE-2026-7"])
    again = _advisory("one", events, id="PYSEC-2026-3", aliases=["CVE-2026-7", "GHSA-aaaa"])
    withdrawn = _advisory("one", events, id="PYSEC-2026-4", withdrawn=_NOW)
    assert _findings(tmp_path, first, again, withdrawn, one="2.0") == [("one", "GHSA-aaaa CVE-2026-7", "2.1")]


@pytest.mark.parametrize(
    ("status", "version", "applies"),
    [
        # Versions in Debian's order: ~ is before the end, an epoch counts first, u10 is after u9.
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
def test_debian_package_is_matched_by_source_and_release(
    status: dict[str, str], version: str, applies: bool, tmp_path: Path
) -> None:
    states = {
        "bookworm": {"repositories": {"bookworm": "1.2-3"}, "urgency": "not yet assigned", **status},
        "trixie": {"status": "open", "repositories": {"trixie": "2"}, "urgency": "high"},
    }
    # Only bookworm's entries of the same source count.
    content = {
        "one": {"CVE-2026-1": {"description": "x", "scope": "remote", "releases": states}},
        "onemore": {"CVE-2026-2": {"releases": {"bookworm": {"status": "open"}}}},
    }
    file = tmp_path / "debian.json"
    file.write_text(json.dumps(content))
    # libone1 is built from one, which is in the path of its file.
    package = deb("libone1", version).model_copy(update={"file": "pool/main/o/one/libone1_1_amd64.deb"})
    known = debian_findings(file, [package], "bookworm")
    assert [(finding.package, finding.advisory) for finding in known.findings] == [("libone1", "CVE-2026-1")] * applies
    assert known.unimportant == (status.get("urgency") == "unimportant")
    assert known.undetermined == (status["status"] == "undetermined")


def test_lock_has_the_sources_of_packages() -> None:
    """As in Debian's indices: a version of its own, a rebuild, a signed kernel."""
    lock = load_lock()
    sources = {package.name: package.source_package for package in (*lock.packages, *lock.machine)}
    assert sources["gcc"] == ("gcc-defaults", "1.203")
    assert sources["libssl3"][0] == "openssl"
    kernels = [source_package for name, source_package in sources.items() if name.startswith("linux-image")]
    assert [name for name, _ in kernels] == ["linux"] * 2
    assert all("-" in version and "+b" not in version for _, version in sources.values() if "-" in version)
    assert sources["bash"] == ("bash", "5.2.15-2")


def _advisory_folder(folder: Path, *entries: dict[str, Any], **states: dict[str, str]) -> Path:
    """A folder of advisories as a nightly job downloads it: OSV's archive and the tracker's file."""
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


def test_clean_audit_reports_its_sources(tmp_path: Path) -> None:
    folder = _advisory_folder(tmp_path, _QUIET, openssl={"status": "resolved", "fixed_version": "0"})
    completed = inv("env.audit", "--advisories", folder)
    # A busy computer prints the progress.
    assert (
        completed.returncode,
        [line for line in completed.stderr.splitlines() if "reading advisories: " not in line],
    ) == (0, [])
    assert "1 of their sources are tracked for bookworm" in completed.stdout
    assert "1 advisories, the newest of " in completed.stdout
    assert completed.stdout.splitlines()[-1] == "no known advisory applies"


def test_finding_is_listed_with_exit_code_1(tmp_path: Path) -> None:
    idna = _advisory("IDNA", [{"introduced": "0"}, {"fixed": "99"}], id="[red]GHSA", aliases=["CVE-2026-5"])
    completed = inv(
        "env.audit", "--advisories", _advisory_folder(tmp_path, idna, bash={"status": "open"}), COLUMNS="150"
    )
    assert completed.returncode == 1
    rows = [" ".join(line.split()) for line in completed.stdout.splitlines()]
    assert "Debian bash 5.2.15-2 CVE-2026-9 -" in rows
    assert any(row.startswith("Python idna ") and row.endswith("[red]GHSA CVE-2026-5 99") for row in rows)
    assert rows[-1] == "advisories that apply: 2"


def _accept(folder: Path, *entries: tuple[str, str, str]) -> Path:
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
    folder = _advisory_folder(tmp_path / "known", idna, openssl={"status": "open"}, bash={"status": "open"})
    days = {-1: "2020-01-31", 1: "2999-01-31"}
    # An advisory by its alias; one of the packages from openssl; one that has expired; one of another package.
    entries = [("CVE-2026-5", "idna", days[1]), ("CVE-2026-9", "libssl3", days[1])]
    entries += [("CVE-2026-9", "bash", days[-1]), ("CVE-2026-5", "numpy", days[1])]
    completed = inv("env.audit", "--advisories", folder, "--accepted", _accept(tmp_path, *entries), COLUMNS="200")
    assert completed.returncode == 1
    rows = [" ".join(line.split()) for line in completed.stdout.splitlines()]
    assert [row for row in rows if row.startswith(("Debian ", "Python "))] == ["Debian bash 5.2.15-2 CVE-2026-9 -"]
    (row_of_idna,) = [row for row in rows if row.startswith("accepted until 2999-01-31: idna ")]
    assert row_of_idna.endswith("GHSA-x CVE-2026-5: nobody calls it")
    assert sum(row.startswith("accepted until 2999-01-31: ") and "libssl3" in row for row in rows) == 1
    assert "was accepted until 2020-01-31: bash, CVE-2026-9: nobody calls it" in rows
    assert "accepted, but does not apply any more: numpy, CVE-2026-5" in rows
    assert rows[-1] == "advisories that apply: 1, 2 accepted"
    entries[2] = ("CVE-2026-9", "bash", days[1])
    completed = inv("env.audit", "--advisories", folder, "--accepted", _accept(tmp_path, *entries), COLUMNS="200")
    assert (completed.returncode, completed.stdout.splitlines()[-1]) == (0, "no known advisory applies, 3 accepted")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{advisory: CVE-1, package: idna, until: 2027-01-31}", "accepted.0.reason"),
        ("{advisory: CVE-1, package: idna, reason: ' ', until: 2027-01-31}", "accepted.0.reason"),
        ("{advisory: CVE-1, package: idna, reason: why}", "accepted.0.until"),
        ("{advisory: CVE-1, package: idna, reason: why, until: soon}", "accepted.0.until"),
    ],
)
def test_acceptance_needs_a_reason_and_an_end(entry: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "accepted.yaml"
    file.write_text(f"accepted:\n  - {entry}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        accepted.load_acceptances(file)


def _replace(folder: Path, file: str, content: bytes | None) -> None:
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)


@pytest.mark.parametrize(
    ("file", "content", "message"),
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
def test_unreadable_advisories_are_an_error(file: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    folder = _advisory_folder(tmp_path, _QUIET, bash={"status": "resolved", "fixed_version": "0"})
    (folder / "osv" / "x.json").write_text(json.dumps(_QUIET))
    _replace(folder, file, content)
    if message.startswith("has no"):
        (folder / "osv" / "x.json").unlink()
    lock = load_lock()
    with pytest.raises(ConfigError) as refused:
        python_findings(folder / "osv", {"one": {"1"}})
        debian_findings(folder / "debian.json", lock.packages, "bookworm")
    assert message in refused.value.message


@pytest.mark.slow
def test_missing_or_old_data_is_no_result(tmp_path: Path) -> None:
    nowhere = inv("env.audit", "--advisories", tmp_path / "nowhere")
    assert nowhere.returncode == 2
    assert "nowhere/osv: there is no such folder" in nowhere.stderr
    old = _advisory_folder(tmp_path / "old", _QUIET | {"modified": "2020-05-01T00:00:00Z"}, bash={"status": "open"})
    completed = inv("env.audit", "--advisories", old)
    assert (completed.returncode, "no known advisory" in completed.stdout) == (3, False)
    assert "osv: is of 2020-05-01, " in completed.stderr
    stale = _advisory_folder(tmp_path / "stale", _QUIET, bash={"status": "open"})
    os.utime(stale / "debian.json", (1_600_000_000, 1_600_000_000))
    completed = inv("env.audit", "--advisories", stale)
    assert completed.returncode == 3
    assert "debian.json: is of 2020-09-13, " in completed.stderr
    assert inv("env.audit", "--advisories", stale, "--max-age", 99_999).returncode == 1


def test_nightly_report_names_advisories_and_gaps(tmp_path: Path) -> None:
    known = _advisory("idna", [{"introduced": "0"}], id="GHSA-<b>")
    audit = report_on(_advisory_folder(tmp_path, known, bash={"status": "open"}))
    night = dataclasses.replace(nightly_report_of((run_that_passed(), None)), advisories=audit)
    folder = report.write_report(night, tmp_path / "reports")
    content = json.loads((folder / "nightly.json").read_text())
    findings = {finding["package"]: finding["advisory"] for finding in content["advisories"]["findings"]}
    assert (findings["idna"], "bash" in findings) == ("GHSA-<b>", True)
    page = (folder / "index.html").read_text()
    assert "<h2>Advisories</h2>" in page and "<td>GHSA-&lt;b&gt;</td>" in page
    # Advisories do not change the verdict on a board.
    assert content["exit_code"] == 0
    missing = report_on(tmp_path / "nowhere")
    assert "there is no such folder" in str(missing["problem"])
    page = report.render_html(dataclasses.replace(night, advisories=missing), tmp_path)
    assert "there is no such folder" in page
    assert "Advisories" not in report.render_html(dataclasses.replace(night, advisories=None), tmp_path)


@pytest.mark.slow
def test_nightly_run_reads_advisories(tmp_path: Path) -> None:
    boards = tmp_path / "boards.yaml"
    boards.write_text("boards: [{board: host, suites: [health]}]\n")
    folder = _advisory_folder(tmp_path, _QUIET, bash={"status": "open"})
    words = ("--config", boards, "--report-dir", tmp_path / "reports", "--advisories", folder)
    completed = inv("nightly", *words)
    assert (completed.returncode, "advisories: 1 apply to locked packages" in completed.stdout) == (0, True), (
        completed.stdout
    )
    content = json.loads((tmp_path / "reports" / "latest" / "nightly.json").read_text())
    assert [finding["package"] for finding in content["advisories"]["findings"]] == ["bash"]
