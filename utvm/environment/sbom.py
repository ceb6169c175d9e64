"""The bill of materials: every package of the environment with its hash, in CycloneDX's JSON format.

It is made from the lock, so it is known before anything is built, and says nothing that was guessed from files.
"""

import json
import urllib.parse
import uuid
from collections.abc import Sequence

import utvm
from utvm.environment.debian import DebianLock, DebianPackage
from utvm.environment.python_lock import Wheel

_SPECIFICATION = "1.5"


def bill_of_materials(debian: DebianLock, wheels: Sequence[Wheel], digest: str) -> str:
    """Return the bill of materials as JSON.

    Args:
        digest: the environment's; the bill's serial number follows from it.
    """
    parts = [*map(_debian_component, debian.packages), *map(_wheel_component, wheels)]
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


def _debian_component(package: DebianPackage) -> dict[str, object]:
    name, version = urllib.parse.quote(package.name, safe=""), urllib.parse.quote(package.version, safe="")
    url = f"pkg:deb/debian/{name}@{version}?arch={package.architecture}"
    return _component(package.name, package.version, url, package.sha256)


def _wheel_component(wheel: Wheel) -> dict[str, object]:
    url = f"pkg:pypi/{wheel.name}@{urllib.parse.quote(wheel.version, safe='')}"
    return _component(wheel.name, wheel.version, url, wheel.sha256)


def _component(name: str, version: str, url: str, sha256: str) -> dict[str, object]:
    return {
        "type": "library",
        "bom-ref": url,
        "name": name,
        "version": version,
        "purl": url,
        "hashes": [{"alg": "SHA-256", "content": sha256}],
    }
