# SPDX-License-Identifier: Apache-2.0
"""The bill of materials: every package with its hash and licences, in CycloneDX's JSON format.

Licences are SPDX expressions if certain, from Debian's machine-readable copyright files (format 1.0) and wheel
metadata; otherwise the bill gives the reason.
"""

import email.parser
import json
import re
import tarfile
import urllib.parse
import uuid
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

import utvm
from utvm.base.storage.config import read_yaml
from utvm.environment.debian import DebianLock, DebianPackage
from utvm.environment.python_lock import Wheel

_DOC = "usr/share/doc"
_FORMAT = re.compile(r"^Format:\s*\S*copyright-format/1\.0", re.MULTILINE)
_LICENSE = re.compile(r"^License:[ \t]*(\S.*)$", re.MULTILINE)
_GNU = re.compile(r"(A?GPL|LGPL|GFDL)-(NIV-)?(\d(?:\.\d)?)(\+)?", re.IGNORECASE)
_EXCEPTION = re.compile(r"(\S+) with (\S+) exception", re.IGNORECASE)
_NAMES = read_yaml(Path(__file__).with_name("licences.yaml"))[0]


@dataclass(frozen=True)
class PackageLicences:
    """A package's licences; ``expression`` is SPDX, or empty if not certain."""

    expression: str = ""
    names: tuple[str, ...] = ()
    reason: str = ""


def debian_licences(layer: Path, names: Iterable[str]) -> dict[str, PackageLicences]:
    texts, links = {}, {}
    with tarfile.open(layer) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if path.parts[:3] != tuple(_DOC.split("/")):
                continue
            if member.issym() and len(path.parts) == 4:
                links[path.name] = PurePosixPath(member.linkname).name
            elif member.isfile() and len(path.parts) == 5 and path.name == "copyright":
                content = tar.extractfile(member)
                assert content
                texts[path.parts[3]] = content.read().decode("utf-8", "replace")
    return {name: _of_copyright(name, texts, links) for name in names}


def wheel_licences(file: Path) -> PackageLicences:
    with zipfile.ZipFile(file) as wheel:
        (name,) = (name for name in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        metadata = email.parser.Parser().parsestr(wheel.read(name).decode("utf-8", "replace"), headersonly=True)
    for field in ("License-Expression", "License"):
        if expression := _canonical(str(metadata.get(field, ""))):
            return PackageLicences(expression)
    classifiers = [str(line) for line in metadata.get_all("Classifier", [])]
    licences = sorted(
        {line.rpartition(" :: ")[2] for line in classifiers if line.startswith("License ::")} - {"OSI Approved"}
    )
    if licences and all(licence in _NAMES["classifiers"] for licence in licences):
        return PackageLicences(" AND ".join(_NAMES["classifiers"][licence] for licence in licences))
    first = str(metadata.get("License", "")).strip().partition("\n")[0]
    names = tuple(filter(None, dict.fromkeys((*licences, first if len(first) <= 80 else ""))))
    return PackageLicences(
        names=names, reason="its metadata names no licence that SPDX has" if names else "its metadata names none"
    )


def _of_copyright(name: str, texts: Mapping[str, str], links: Mapping[str, str]) -> PackageLicences:
    folder = name
    for _ in links:  # A package's folder may link to another's; follow each link at most once.
        folder = links.get(folder, folder)
    if folder not in texts:
        return PackageLicences(reason="it has no copyright file")
    if not _FORMAT.search(texts[folder]):
        return PackageLicences(reason=f"its copyright file is free text: /{_DOC}/{folder}/copyright")
    names = sorted({" ".join(text.split()) for text in _LICENSE.findall(texts[folder])})
    parts = [_spdx(text) for text in names]
    unknown = [text for text, part in zip(names, parts, strict=True) if not part]
    if unknown or not names:
        reason = f"SPDX has no such names, or not for certain: {'; '.join(unknown)}"
        return PackageLicences(names=tuple(names), reason=reason if unknown else "it names no licence")
    unique = sorted(set(parts))
    return PackageLicences(" AND ".join(f"({part})" if " OR " in part and unique[1:] else part for part in unique))


def _spdx(text: str) -> str:
    """Translate the copyright format to SPDX; empty if that is not certain."""
    if "," in text:  # It binds less than "or", but not every author means that.
        return ""
    choices = [[_short(name) for name in part.split(" and ")] for part in text.split(" or ")]
    if not all(all(names) for names in choices):
        return ""
    return " OR ".join(" AND ".join(names) for names in choices)


def _short(name: str) -> str:
    gnu = _GNU.fullmatch(name)
    if gnu:
        family, number = gnu[1].upper(), gnu[3] if "." in gnu[3] else f"{gnu[3]}.0"
        niv = "-no-invariants" if gnu[2] else ""
        return _canonical(f"{family}-{number}{niv}-{'or-later' if gnu[4] else 'only'}")
    if match := _EXCEPTION.fullmatch(name):
        base = _short(match[1])
        return _canonical(f"{base} WITH {match[2]}") or _canonical(f"{base} WITH {match[2]}-exception")
    return _NAMES["debian"].get(name.lower()) or _canonical(name)


def _canonical(text: str) -> str:
    try:
        expression = canonicalize_license_expression(text) if text else ""
    except InvalidLicenseExpression:
        return ""
    # A LicenseRef is a private name.
    return "" if "LicenseRef" in expression else expression


_SPECIFICATION = "1.5"


def bill_of_materials(
    debian: DebianLock, wheels: Sequence[Wheel], digest: str, terms: Mapping[str, PackageLicences]
) -> str:
    """Return the bill of materials as JSON.

    Args:
        digest: the environment's; it determines the serial number.
        terms: licences by the SHA-256 of the package file.
    """
    packages: tuple[DebianPackage | Wheel, ...] = (*debian.packages, *wheels)
    parts = [_component(package, terms[package.sha256]) for package in packages]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": _SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {
            "timestamp": debian.date.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "container",
                "bom-ref": "environment",
                "name": "utvm-environment",
                "version": utvm.__version__,
            },
        },
        "components": parts,
        "dependencies": [{"ref": "environment", "dependsOn": [part["bom-ref"] for part in parts]}],
    }
    return json.dumps(bill, indent=1) + "\n"


def _component(package: DebianPackage | Wheel, terms: PackageLicences) -> dict[str, object]:
    name, version = (urllib.parse.quote(text, safe="") for text in (package.name, package.version))
    url = f"pkg:pypi/{name}@{version}"
    if isinstance(package, DebianPackage):
        url = f"pkg:deb/debian/{name}@{version}?arch={package.architecture}"
    licences: dict[str, object] = {"licenses": [{"expression": terms.expression}]}
    if not terms.expression:
        licences = {
            "licenses": [{"license": {"name": name}} for name in terms.names or ["NOASSERTION"]],
            "properties": [{"name": "utvm:no-spdx-expression", "value": terms.reason}],
        }
    return {
        "type": "library",
        "bom-ref": url,
        "name": package.name,
        "version": package.version,
        "purl": url,
        "hashes": [{"alg": "SHA-256", "content": package.sha256}],
        **licences,
    }
