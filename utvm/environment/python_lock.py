"""The Python half of the lock: of the files that ``python.lock`` allows, those that the environment takes.

``python.lock`` is for every system that utvm runs on, with the hashes of all files of a release. The environment
is one system, and ``wheels.lock`` names its one file of each: an installer elsewhere cannot choose another.
"""

import json
import re
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pydantic import Field

from utvm import process
from utvm.config import Record, load_yaml
from utvm.environment.recipe import PROVISION, PythonPart, Recipe
from utvm.errors import ConfigError, ProvisionError

PYTHON_LOCK = PROVISION / "python.lock"
LOCK = PROVISION / "wheels.lock"
_REMAKE = "./inv env.lock makes it"
_OLDEST_GLIBC = 5  # 2.5, of the first manylinux.


class Wheel(Record):
    """One wheel: ``file`` is its name."""

    name: str
    version: str
    file: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class WheelLock(Record):
    """All wheels, sorted by name."""

    wheels: tuple[Wheel, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Pin:
    """A line of ``python.lock`` that holds for the environment."""

    name: str
    version: str
    hashes: frozenset[str]


def load_lock(path: Path = LOCK) -> WheelLock:
    """Read a lock.

    Raises:
        ConfigError: it is missing or wrong.
    """
    return load_yaml(path, WheelLock, _REMAKE)


def write_lock(lock: WheelLock, path: Path) -> None:
    """Write a lock: JSON, a wheel a line, so that version control shows which ones change."""
    wheels = ",\n".join(f"  {json.dumps(wheel.model_dump())}" for wheel in lock.wheels)
    path.write_text(f'{{\n "wheels": [\n{wheels}\n ]\n}}\n', encoding="utf-8")


def pins(path: Path, python: PythonPart) -> dict[str, Pin]:
    """Return what ``python.lock`` pins for the environment's Python, by name, and the recipe does not leave out.

    Raises:
        ConfigError: it cannot be read, a line is none that uv writes, or the recipe leaves out what it lacks.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", _REMAKE) from error
    found = {pin.name: pin for pin in _parse(path, text, python)}
    unknown = sorted(python.without.keys() - found.keys())
    if unknown:
        raise ConfigError(
            f"environment.yaml: python.without: {', '.join(unknown)} is not in python.lock", "remove it there too"
        )
    return {name: pin for name, pin in found.items() if name not in python.without}


def check_current(lock: WheelLock, pinned: dict[str, Pin], recipe: Recipe) -> None:
    """Check that the wheels are those that ``python.lock`` allows, and that this has what ``python.in`` asks for.

    Raises:
        ConfigError: one of them was changed without the others.
    """
    for line in recipe.requirements:
        asked = Requirement(line)
        if canonicalize_name(asked.name) in recipe.python.without:
            continue
        pin = pinned.get(canonicalize_name(asked.name))
        if pin is None or pin.version not in asked.specifier:
            found = f"has {pin.version}" if pin else "does not have it"
            raise ConfigError(f"python.in asks for {asked}, python.lock {found}", _REMAKE)
    wheels = {wheel.name: wheel for wheel in lock.wheels}
    for name in sorted(wheels.keys() ^ pinned.keys()):
        where = "wheels.lock but not in python.lock" if name in wheels else "python.lock but not in wheels.lock"
        raise ConfigError(f"{name} is in {where}", _REMAKE)
    for name, wheel in wheels.items():
        if wheel.version != pinned[name].version or wheel.sha256 not in pinned[name].hashes:
            raise ConfigError(f"wheels.lock: {wheel.file} is not a file that python.lock allows", _REMAKE)


def resolve(recipe: Recipe, pinned: dict[str, Pin]) -> WheelLock:
    """Choose a wheel for every pin: the one that pip would install with the environment's Python.

    Raises:
        ProvisionError: the index cannot be reached, has no such wheel, or has one with another hash.
    """
    with tempfile.TemporaryDirectory(prefix="utvm-pip-") as folder:
        report = Path(folder) / "report.json"
        process.run(
            [
                *pip("install", recipe.python),
                "--dry-run",
                "--ignore-installed",
                f"--target={folder}",
                f"--report={report}",
                *(f"{pin.name}=={pin.version}" for pin in pinned.values()),
            ],
            error=ProvisionError,
            hint="is the package index reachable, and does it have wheels for this Python?",
        )
        chosen = json.loads(report.read_text(encoding="utf-8"))["install"]
    wheels = sorted((_wheel(entry, pinned) for entry in chosen), key=lambda wheel: wheel.name)
    return WheelLock(wheels=tuple(wheels))


def pip(command: str, python: PythonPart) -> list[str]:
    """Return pip's command line, up to the requirements, for wheels that suit the environment, and no others."""
    newest = int(python.glibc.partition(".")[2])
    return [
        *(sys.executable, "-m", "pip", command),
        *("--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--only-binary=:all:"),
        *("--implementation=cp", f"--python-version={python.version}"),
        *(f"--abi={abi}" for abi in (f"cp{python.version.replace('.', '')}", "abi3", "none")),
        *(f"--platform=manylinux_2_{minor}_x86_64" for minor in range(newest, _OLDEST_GLIBC - 1, -1)),
        *(f"--platform=manylinux{name}_x86_64" for name in ("2014", "2010", "1")),
    ]


def _parse(path: Path, text: str, python: PythonPart) -> Iterator[Pin]:
    system = {
        "python_version": python.version,
        "python_full_version": f"{python.version}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    for line in text.replace("\\\n", " ").splitlines():
        said = line.partition("--hash")[0].strip()
        if not said or said.startswith("#"):
            continue
        try:
            requirement = Requirement(said)
        except InvalidRequirement as error:
            raise ConfigError(f"{path}: {said!r} is no requirement: {error}", _REMAKE) from error
        hashes = frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", line))
        versions = [one.version for one in requirement.specifier if one.operator == "=="]
        if not hashes or len(versions) != 1:
            raise ConfigError(f"{path}: {said!r} has no version or no hash", _REMAKE)
        marker: Marker | None = requirement.marker
        if marker is None or marker.evaluate(system):
            yield Pin(canonicalize_name(requirement.name), versions[0], hashes)


def _wheel(entry: dict[str, dict[str, object]], pinned: dict[str, Pin]) -> Wheel:
    """Read what pip's report says of one file; its format is pip's documented one."""
    metadata, place = entry["metadata"], entry["download_info"]
    name = canonicalize_name(str(metadata["name"]))
    archive = place["archive_info"]
    assert isinstance(archive, dict)
    sha256 = archive["hashes"]["sha256"]
    file = urllib.parse.unquote(str(place["url"]).rpartition("/")[2])
    if sha256 not in pinned[name].hashes:
        raise ProvisionError(f"{file}: the package index has one that python.lock does not allow", "do not use it")
    return Wheel(name=name, version=pinned[name].version, file=file, sha256=sha256)
