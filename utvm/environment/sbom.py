# SPDX-License-Identifier: Apache-2.0
"""The bill of materials: every package of the environment with its hash and terms, in CycloneDX's JSON format.

Names and hashes are the lock's, terms what the packages say themselves; nothing is guessed.
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
from utvm.environment.debian import DebianLock, DebianPackage
from utvm.environment.python_lock import Wheel

_DOC = "usr/share/doc"
_FORMAT = re.compile(r"^Format:\s*\S*copyright-format/1\.0", re.MULTILINE)
_LICENSE = re.compile(r"^License:[ \t]*(\S.*)$", re.MULTILINE)
# What the format calls differently than SPDX; a plus behind a name is "or later".
_SHORT = {
    "apache": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "artistic": "Artistic-1.0",
    "artistic-2": "Artistic-2.0",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "bsd-4-clause": "BSD-4-Clause",
    "bsl-1": "BSL-1.0",
    "cc0": "CC0-1.0",
    "expat": "MIT",
    "isc": "ISC",
    "perl": "Artistic-1.0-Perl OR GPL-1.0-or-later",
    "zlib": "Zlib",
}
_GNU = re.compile(r"(A?GPL|LGPL|GFDL)-(NIV-)?(\d(?:\.\d)?)(\+)?", re.IGNORECASE)
_EXCEPTION = re.compile(r"(\S+) with (\S+) exception", re.IGNORECASE)
# Classifiers that mean one licence and no family of them.
_CLASSIFIED = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "The Unlicense (Unlicense)": "Unlicense",
}


@dataclass(frozen=True)
class PackageLicences:
    """A package's licences.

    Attributes:
        expression: all of it in SPDX's words; empty where that is not known.
        names: what the package itself says, where it is not.
        reason: why there is no expression.
    """

    expression: str = ""
    names: tuple[str, ...] = ()
    reason: str = ""


def debian_licences(layer: Path, names: Iterable[str]) -> dict[str, PackageLicences]:
    """Return the terms of packages that are installed in a layer."""
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
    """Return the terms of a wheel."""
    with zipfile.ZipFile(file) as wheel:
        (name,) = (each for each in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each))
        metadata = email.parser.Parser().parsestr(wheel.read(name).decode("utf-8", "replace"), headersonly=True)
    for field in ("License-Expression", "License"):
        if found := _canonical(str(metadata.get(field, ""))):
            return PackageLicences(found)
    classifiers = [str(each) for each in metadata.get_all("Classifier", [])]
    said = sorted(
        {each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::")} - {"OSI Approved"}
    )
    if said and all(each in _CLASSIFIED for each in said):
        return PackageLicences(" AND ".join(_CLASSIFIED[each] for each in said))
    first = str(metadata.get("License", "")).strip().partition("\n")[0]
    names = tuple(filter(None, dict.fromkeys((*said, first if len(first) <= 80 else ""))))
    return PackageLicences(
        names=names, reason="its metadata names no licence that SPDX has" if names else "its metadata names none"
    )


def _of_copyright(name: str, texts: Mapping[str, str], links: Mapping[str, str]) -> PackageLicences:
    place = name
    for _ in links:  # One package's folder may be another's; never more steps than there are links.
        place = links.get(place, place)
    if place not in texts:
        return PackageLicences(reason="it has no copyright file")
    if not _FORMAT.search(texts[place]):
        return PackageLicences(reason=f"its copyright file is free text: /{_DOC}/{place}/copyright")
    said = sorted({" ".join(each.split()) for each in _LICENSE.findall(texts[place])})
    parts = [_spdx(each) for each in said]
    unknown = [each for each, part in zip(said, parts, strict=True) if not part]
    if unknown or not said:
        reason = (
            f"SPDX has no such names, or not for certain: {'; '.join(unknown)}"
            if unknown
            else "it names no licence"
        )
        return PackageLicences(names=tuple(said), reason=reason)
    every = sorted(set(parts))
    return PackageLicences(" AND ".join(f"({part})" if " OR " in part and every[1:] else part for part in every))


def _spdx(said: str) -> str:
    """Return what the copyright format's words for a licence are in SPDX, or nothing."""
    if "," in said:  # It binds less than "or" does, and who writes it does not always mean that.
        return ""
    either = [[_short(word) for word in part.split(" and ")] for part in said.split(" or ")]
    if not all(all(words) for words in either):
        return ""
    return " OR ".join(" AND ".join(words) for words in either)


def _short(name: str) -> str:
    gnu = _GNU.fullmatch(name)
    if gnu:
        family, number = gnu[1].upper(), gnu[3] if "." in gnu[3] else f"{gnu[3]}.0"
        # A manual of which all may be changed: "no invariants".
        niv = "-no-invariants" if gnu[2] else ""
        return _canonical(f"{family}-{number}{niv}-{'or-later' if gnu[4] else 'only'}")
    if less := _EXCEPTION.fullmatch(name):
        below = _short(less[1])
        return _canonical(f"{below} WITH {less[2]}") or _canonical(f"{below} WITH {less[2]}-exception")
    return _SHORT.get(name.lower()) or _canonical(name)


def _canonical(text: str) -> str:
    try:
        found = canonicalize_license_expression(text) if text else ""
    except InvalidLicenseExpression:
        return ""
    # References are names that somebody gave, which nobody else knows.
    return "" if "LicenseRef" in found else found


_SPECIFICATION = "1.5"


def bill_of_materials(
    debian: DebianLock, wheels: Sequence[Wheel], digest: str, terms: Mapping[str, PackageLicences]
) -> str:
    """Return the bill of materials as JSON.

    Args:
        digest: the environment's; the bill's serial number follows from it.
        terms: of each package, by the SHA-256 of its file.
    """
    parts = [_debian_component(each, terms[each.sha256]) for each in debian.packages]
    parts += [_wheel_component(each, terms[each.sha256]) for each in wheels]
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


def _debian_component(package: DebianPackage, terms: PackageLicences) -> dict[str, object]:
    name, version = urllib.parse.quote(package.name, safe=""), urllib.parse.quote(package.version, safe="")
    url = f"pkg:deb/debian/{name}@{version}?arch={package.architecture}"
    return _component(package.name, package.version, url, package.sha256, terms)


def _wheel_component(wheel: Wheel, terms: PackageLicences) -> dict[str, object]:
    url = f"pkg:pypi/{wheel.name}@{urllib.parse.quote(wheel.version, safe='')}"
    return _component(wheel.name, wheel.version, url, wheel.sha256, terms)


def _component(name: str, version: str, url: str, sha256: str, terms: PackageLicences) -> dict[str, object]:
    return {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": version,
        "purl": url,
        "hashes": [{"alg": "SHA-256", "content": sha256}],
        **_licences(terms),
    }


def _licences(terms: PackageLicences) -> dict[str, object]:
    if terms.expression:
        return {"licenses": [{"expression": terms.expression}]}
    return {
        "licenses": [{"license": {"name": name}} for name in terms.names or ["NOASSERTION"]],
        "properties": [{"name": "utvm:no-spdx-expression", "value": terms.reason}],
    }
