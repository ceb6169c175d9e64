# SPDX-License-Identifier: Apache-2.0
"""Describes the environment of a run, and writes its report: ``report.json``, ``junit.xml`` and ``index.html``.

Readers never see a partial report: the directory and ``latest`` each appear by one atomic rename.
"""

import datetime
import importlib.metadata
import json
import platform
import secrets
import shlex
import shutil
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from pathlib import Path

import utvm
from utvm.base.process import version_of
from utvm.base.storage.cache import content_key, tree_digest
from utvm.base.storage.files import open_regular
from utvm.base.text.quoting import legal_xml
from utvm.boards import Board
from utvm.errors import ConfigError, ProvisionError
from utvm.hil import figures, html, schemas
from utvm.hil.results import CaseResult, Environment, Outcome, RunReport, Whereabouts
from utvm.paths import DATA, PACKAGE, PROVISION
from utvm.probe.pyocd.server import version as pyocd_version
from utvm.provenance.location import environment_digest, inherited_lease, inspect_location, read_checkout

_ELEMENTS = {
    Outcome.FAILED: "failure",
    Outcome.ERROR: "error",
    Outcome.INFRASTRUCTURE: "error",
    # JUnit has no "not run".
    Outcome.NOT_RUN: "skipped",
    Outcome.SKIPPED: "skipped",
}


def render_junit(report: RunReport) -> str:
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root,
        "testsuite",
        name=f"hil {report.board.full_name}",
        tests=str(len(report.cases)),
        failures=str(report.count(Outcome.FAILED)),
        errors=str(report.count(Outcome.INFRASTRUCTURE) + report.count(Outcome.ERROR)),
        skipped=str(report.count(Outcome.SKIPPED) + report.count(Outcome.NOT_RUN)),
        time=f"{sum(case.duration_s for case in report.cases):.3f}",
        timestamp=report.started,
        hostname=report.environment.place.hostname,
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in {
        "run_id": report.run_id,
        "commit": report.checkout.commit or "",
        "dirty": json.dumps(report.checkout.dirty),
        "board": report.board.name,
        "kind": report.board.kind,
        "probe": report.board.probe,
        "serial": report.board.serial,
        "environment": report.environment.digest,
        "lock": report.environment.lock,
        "place": report.environment.place.kind,
        "lease": json.dumps(report.environment.place.lease or {}),
        "frozen": str(report.environment.place.frozen).lower(),
        "installed": report.environment.place.installed,
        "verdict": report.verdict.value,
        "trouble": report.trouble,
        **{
            f"{model.name}, {model.executor}: {figure.name}": json.dumps(model.figures[figure.name])
            for model in report.models
            for figure in figures.present_figures([model.figures])
        },
    }.items():
        ET.SubElement(properties, "property", name=name, value=value)
    for case in report.cases:
        _add_case(suite, case)
    return xml_document(root)


def xml_document(root: ET.Element) -> str:
    """Return an element as an XML document, without the characters that XML does not allow."""
    for element in root.iter():
        element.attrib = {name: legal_xml(value) for name, value in element.attrib.items()}
        element.text = legal_xml(element.text) if element.text else None
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_case(suite: ET.Element, case: CaseResult) -> None:
    element = ET.SubElement(
        suite, "testcase", classname=case.suite.removesuffix(".py"), name=case.name, time=f"{case.duration_s:.3f}"
    )
    kind = _ELEMENTS.get(case.outcome)
    if kind:
        child = ET.SubElement(element, kind, message=case.message)
        child.text = case.details
    elif case.message:
        ET.SubElement(element, "system-out").text = case.message


FILES = ("report.json", "junit.xml", "index.html")


def new_run_id(now: datetime.datetime) -> str:
    """Return a unique id that sorts by time."""
    utc = now.astimezone(datetime.timezone.utc)
    return f"{utc:%Y%m%dT%H%M%S}.{utc.microsecond // 1000:03d}Z-{secrets.token_hex(2)}"


def logs_beside(root: Path) -> Path:
    return root.parent / "logs"


def write_report(report: RunReport, root: Path) -> Path:
    content = report.as_json()
    schemas.check_schema(content, schemas.REPORT)
    texts = {
        "report.json": json.dumps(content, indent=2, ensure_ascii=False) + "\n",
        "junit.xml": render_junit(report),
        "index.html": html.render_page(report, logs_beside(root) / report.run_id, root / report.run_id),
    }
    return publish(root, report.run_id, lambda temporary: write_texts(temporary, texts))


def write_texts(directory: Path, texts: Mapping[str, str]) -> None:
    """Write files into a directory; characters that are not Unicode become question marks."""
    for file, text in texts.items():
        # The parent directory may belong to another user, who can rename ours.
        with open(directory / file, "x", encoding="utf-8", errors="replace", opener=open_regular) as output:
            output.write(text)


def publish(root: Path, run_id: str, fill: Callable[[Path], None]) -> Path:
    """Create a report atomically as ``root/run_id``, point ``root/latest`` at it, and return its directory."""
    directory = root / run_id
    with ConfigError.on_os_error(
        f"{directory}: the report cannot be written", "make the directory writable, or choose another with --report-dir"
    ):
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=root, ignore_cleanup_errors=True) as name:
            temporary = Path(name) / run_id
            temporary.mkdir()
            fill(temporary)
            temporary.rename(directory)
        _switch_latest(root, run_id)
    return directory


def _switch_latest(root: Path, run_id: str) -> None:
    latest, temporary = root / "latest", root / f".latest-{secrets.token_hex(4)}"
    if latest.is_dir() and not latest.is_symlink():
        # For example, from an archive that followed symbolic links.
        shutil.rmtree(latest)
    temporary.symlink_to(run_id)
    temporary.replace(latest)


def prune_reports(folder: Path, before: int, size_limit: float) -> tuple[int, int]:
    """Remove reports below ``build`` with their logs, if older than a time or beyond ``size_limit`` bytes in all.

    The newest run and night stay. Returns the numbers of runs and bytes removed.
    """
    runs: dict[str, list[Path]] = {}
    for root in ("reports", "logs", "reports/nightly", "reports/nightly/logs"):
        for path in folder.glob(f"{root}/[0-9]*T*Z-*"):
            runs.setdefault(path.name, []).append(path)
    newest = {(folder / root / "latest").resolve().name for root in ("reports", "reports/nightly")}
    sizes = {
        name: sum(file.lstat().st_size for path in paths for file in path.rglob("*")) for name, paths in runs.items()
    }
    begin, left, removed = time.strftime("%Y%m%dT%H%M%S", time.gmtime(before)), sum(sizes.values()), 0
    for name in sorted(runs.keys() - newest):
        if name >= begin and left <= size_limit:
            break
        for path in runs[name]:
            shutil.rmtree(path, ignore_errors=True)
        left, removed = left - sizes[name], removed + 1
    return removed, sum(sizes.values()) - left


def checkout_digest(provision: Path = PROVISION) -> str:
    """Return the digest of the environment that this checkout requests, the same in all locations.

    A SHA-256 over the package lists and locks, and the sources of utvm and of the toolchain files.
    """
    return content_key(environment_digest(provision), tree_digest(PACKAGE), tree_digest(DATA / "toolchains"))


def describe_environment(board: Board) -> Environment:
    tools = {
        "python": platform.python_version(),
        "tvm": importlib.metadata.version("apache-tvm"),
        "openocd": "not installed",
        **({"pyocd": pyocd_version()} if board.by_pyocd else {}),
        "gcc": board.compiler.version,
        "unicorn": importlib.metadata.version("unicorn"),
        "utvm": utvm.__version__,
    }
    if shutil.which("openocd") or not board.by_pyocd:
        tools["openocd"] = _version("openocd", r"Open On-Chip Debugger (\S+)")
    emulator = board.virtual.emulator
    # A board that may be plugged in may not need QEMU; starting QEMU reports it if missing.
    if emulator and (shutil.which(emulator.program) or not board.physical):
        tools["qemu"] = _version(emulator.program, r"QEMU emulator version (\S+)")
    location = inspect_location()
    lease = inherited_lease() if location.kind == "farm" else None
    place = Whereabouts(
        kind=location.kind,
        environment=location.environment,
        installed=location.installed,
        hostname=read_checkout().hostname,
        tools=tools,
        lease=lease.record if lease else None,
    )
    return Environment(checkout_digest(), environment_digest(), place)


def _version(program: str, pattern: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise ProvisionError(f"{program} is not installed", f"sudo apt-get install {program}")
    # OpenOCD prints its version on standard error.
    command = ["sh", "-c", f"{shlex.quote(path)} --version 2>&1"]
    return version_of(command, timeout=10, error=ProvisionError, pattern=pattern)
