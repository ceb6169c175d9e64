# SPDX-License-Identifier: Apache-2.0
"""The bill of materials: every package of the environment with its hash and terms, in CycloneDX's JSON format.

Names and hashes are the lock's, terms what the packages say themselves; nothing is guessed.
"""

import json
import urllib.parse
import uuid
from collections.abc import Mapping, Sequence

import utvm
from utvm.environment.debian import DebianLock, DebianPackage
from utvm.environment.licences import PackageLicences
from utvm.environment.python_lock import Wheel

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
