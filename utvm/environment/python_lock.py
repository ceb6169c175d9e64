# SPDX-License-Identifier: Apache-2.0
"""The Python half of the lock: ``pylock.toml`` (PEP 751), and the wheels that the environment selects from it.

The lock covers every Linux and Python that utvm supports; the environment takes one file per package, selected by
the format's own rules. The format requires a URL or path of each file; ours is a path in a folder beside the lock,
as in an archive of ``env.archive``, so the lock names no server.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from packaging.markers import Environment, Marker
from packaging.pylock import PackageWheel, Pylock, PylockSelectError, PylockValidationError
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from pydantic import Field

from utvm import errors, paths
from utvm.base.process import run_tool
from utvm.base.process.interpreter import python_command
from utvm.base.storage import config, files
from utvm.base.storage.cache import cache_root, file_digest, mark_used
from utvm.base.storage.lock import hold
from utvm.environment.recipe import PythonPart, Recipe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


LOCK = paths.PROVISION / "pylock.toml"
FOLDER = "wheels"
"""Folder beside a lock that its paths refer to."""
_REMAKE = "create it: ./inv env.lock"
_OLDEST_GLIBC = 5  # 2.5, of the first manylinux.
_LINUX = "sys_platform == 'linux'"


class Wheel(config.Record):
    name: str
    version: str
    file: str
    size: int = Field(gt=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


def load_wheels(lock: Path, python: PythonPart) -> tuple[Wheel, ...]:
    text = files.read_text(lock, _REMAKE)
    try:
        return parse_wheels(text, python)
    except errors.ConfigError as error:
        raise errors.ConfigError(f"{lock}: {error.message}", error.hint) from error


def parse_wheels(text: str, python: PythonPart) -> tuple[Wheel, ...]:
    """Return the wheels of a lock's text, as :func:`load_wheels`."""
    version, platforms = tuple(map(int, python.version.split("."))), _platforms(python)
    name = f"cp{python.version.replace('.', '')}"
    tags = [
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, interpreter=name, platforms=platforms),
    ]
    try:
        lock = Pylock.from_dict(tomllib.loads(text))
        packages = list(lock.select(environment=cast(Environment, _system(python.version)), tags=tags))
        wheels = [
            Wheel(
                name=package.name,
                version=str(package.version),
                file=file.filename,
                size=file.size or 0,
                sha256=file.hashes["sha256"],
            )
            for package, file in packages
            if isinstance(file, PackageWheel)
        ]
    except (tomllib.TOMLDecodeError, PylockValidationError, PylockSelectError, KeyError, ValueError) as error:
        raise errors.ConfigError(
            f"is not a lock for Python {python.version}: {' '.join(str(error).split())}", _REMAKE
        ) from error
    return tuple(sorted(wheels, key=lambda wheel: wheel.name))


def select_wheels(wheels: tuple[Wheel, ...], recipe: Recipe) -> tuple[Wheel, ...]:
    """Return the wheels that the recipe does not leave out, after checking them against ``python.in``."""
    versions = {wheel.name: wheel.version for wheel in wheels}
    unknown = sorted(recipe.python.without.keys() - versions.keys())
    if unknown:
        raise errors.ConfigError(
            f"environment.yaml: python.without: {', '.join(unknown)} is not in pylock.toml", "remove it there too"
        )
    for line in recipe.requirements:
        required = Requirement(line)
        if required.marker and not required.marker.evaluate(_system(recipe.python.version)):
            continue
        version = versions.get(canonicalize_name(required.name))
        if version is None or version not in required.specifier:
            problem = f"has {version}" if version else "does not have it"
            raise errors.ConfigError(f"python.in asks for {required}, pylock.toml {problem}", _REMAKE)
    return tuple(wheel for wheel in wheels if wheel.name not in recipe.python.without)


def resolver() -> str:
    """Return the path of uv; raise ProvisionError if it is not installed."""
    if uv := shutil.which("uv"):
        return uv
    raise errors.ProvisionError("uv is not installed", "pip install uv, then start again")


def resolve(folder: Path, python: PythonPart, update: str = "") -> None:
    """Write the lock of ``python.in`` into a folder; keep an existing lock's versions where possible."""
    uv, lock = resolver(), folder / LOCK.name
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = SpecifierSet(project["requires-python"])
    supported = [f"3.{minor}" for minor in range(100) if f"3.{minor}.0" in pythons]
    run_tool(
        [
            *(uv, "pip", "compile", "--quiet", "--universal", f"--python-version={supported[0]}"),
            *("--format=pylock.toml", "--only-binary=:all:", "--no-header", "--no-annotate"),
            *([f"--upgrade-package={update}"] if update else []),
            *(f"--output-file={lock}", folder / "python.in"),
        ],
        cwd=paths.ROOT,  # A uv.toml in the current folder could select another index.
        error=errors.ProvisionError,
    )
    content = tomllib.loads(lock.read_text(encoding="utf-8"))
    text = _format_lock(content["packages"], pythons, supported)
    for version in supported:
        try:
            parse_wheels(text, python.model_copy(update={"version": version}))
        except errors.ConfigError as error:
            raise errors.ProvisionError(f"pylock.toml {error.message}") from error
    lock.write_text(text, encoding="utf-8")


def pip(command: str, python: PythonPart) -> list[str]:
    """Return pip's command line, up to the requirements, for wheels that suit the environment only."""
    return python_command(
        *("pip", command),
        *("--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--only-binary=:all:"),
        *("--implementation=cp", f"--python-version={python.version}"),
        *(f"--abi={abi}" for abi in (f"cp{python.version.replace('.', '')}", "abi3", "none")),
        *(f"--platform={platform}" for platform in _platforms(python)),
    )


def _format_lock(packages: list[dict[str, Any]], pythons: SpecifierSet, supported: list[str]) -> str:
    """Format a lock without URLs, with the packages that a supported Python on Linux needs."""
    exact = [f"cp{version.replace('.', '')}" for version in supported]
    parts = [
        "# ./inv env.lock makes this of python.in. The format is PEP 751's; its paths say no more than a name.",
        'lock-version = "1.0"',
        f"environments = [{json.dumps(_LINUX)}]",
        f"requires-python = {json.dumps(str(pythons))}",
        'created-by = "utvm"',
    ]
    for package in packages:
        marker = package.get("marker", "")
        if marker == f"python_full_version >= '{supported[0]}'":
            marker = ""  # uv repeats the lock's requirement for many packages.
        if marker and not any(Marker(marker).evaluate(_system(version)) for version in supported):
            continue
        parts += ["", "[[packages]]", *(f"{key} = {json.dumps(package[key])}" for key in ("name", "version"))]
        parts += [f"marker = {json.dumps(marker)}"] if marker else []
        parts += ["wheels = [", *_rows(package["wheels"], exact), "]"]
    return "\n".join(parts) + "\n"


def _rows(wheels: list[dict[str, Any]], exact: list[str]) -> Iterator[str]:
    for wheel in wheels:
        file = (wheel.get("url") or wheel["path"]).rpartition("/")[2]
        if any(
            (tag.platform == "any" or "linux" in tag.platform)
            and (tag.abi == "abi3" or (tag.interpreter in ("py3", *exact) and tag.abi in ("none", *exact)))
            for tag in parse_wheel_filename(file)[3]
        ):
            path, digest = json.dumps(f"{FOLDER}/{file}"), json.dumps(wheel["hashes"]["sha256"])
            yield f"  {{ path = {path}, size = {wheel['size']}, hashes = {{ sha256 = {digest} }} }},"


def _platforms(python: PythonPart) -> list[str]:
    older = {17: "2014", 12: "2010", 5: "1"}
    newest = int(python.glibc.partition(".")[2])
    platforms = []
    for minor in range(newest, _OLDEST_GLIBC - 1, -1):
        platforms.append(f"manylinux_2_{minor}_x86_64")
        platforms += [f"manylinux{older[minor]}_x86_64"] if minor in older else []
    return platforms


def _system(version: str) -> dict[str, str]:
    """Environment for markers: Linux with CPython of a version."""
    return {
        "python_version": version,
        "python_full_version": f"{version}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "implementation_version": f"{version}.0",
        "platform_release": "",
        "platform_version": "",
    }


_PATIENCE = 900.0  # Seconds for some 20 MB over a slow line.


def locked_venv(lock: Path, what: str, say: Callable[[str], None], *, install: bool = True) -> Path:
    """Return the folder of a virtual environment; rebuild it if its lock has changed, or refuse that."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache_root() / lock.stem / f"{file_digest(lock)[:16]}-{python}"
    mark_used(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with hold(folder.name, directory=folder.parent, patience=_PATIENCE):
        if not (folder / "whole").is_file():
            if not install:
                message = f"the Python packages of {what} are not cached, and this command does not fetch them"
                raise errors.ProvisionError(message, f"commands that use {what} fetch them: some 20 MB")
            say(f"creating the environment of {what}: some 20 MB to fetch")
            shutil.rmtree(folder, ignore_errors=True)
            run_tool(python_command("venv", str(folder)), error=errors.ProvisionError, timeout=_PATIENCE)
            run_tool(
                python_command(
                    *("pip", "install", "--quiet", "--disable-pip-version-check"),
                    *("--require-hashes", "--no-deps", "--only-binary=:all:", "-r", str(lock)),
                    interpreter=(str(folder / "bin" / "python"),),
                ),
                error=errors.ProvisionError,
                hint="is the package index reachable?",
                timeout=_PATIENCE,
            )
            (folder / "whole").touch()
    return folder
