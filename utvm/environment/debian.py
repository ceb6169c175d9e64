# SPDX-License-Identifier: Apache-2.0
"""The Debian half of the lock: packages, resolved by apt in an empty root.

The hashes come from the indices that the archive's keyring signs, so a mirror or copy need not be trusted.
"""

import contextlib
import datetime
import email.utils
import functools
import json
import re
import subprocess
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from pydantic import Field

from utvm import errors, paths
from utvm.base.process import run_tool
from utvm.base.storage.config import Record, load_yaml
from utvm.environment.recipe import DebianPart, Recipe

LOCK = paths.PROVISION / "debian.lock"
_REMAKE = "create it: ./inv env.lock"
_REQUIRED = re.compile(r"^(Essential: yes|Priority: required)$", re.M)


class DebianPackage(Record):
    """One package file; ``file`` is its path in ``archive``, a folder of a Debian mirror.

    ``source`` is name and version of the source package, if the other fields do not imply them.
    """

    name: str
    version: str
    architecture: str
    archive: str
    file: str
    size: int = Field(gt=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    source: str = Field(default="", pattern=r"^(\S+ \S+)?$")

    @property
    def source_package(self) -> tuple[str, str]:
        if self.source:
            name, _, version = self.source.partition(" ")
            return name, version
        # A mirror has a folder per source; +b marks a rebuild.
        return self.file.split("/")[-2], re.sub(r"\+b\d+$", "", self.version)


class DebianLock(Record):
    """All packages, sorted by name, and those of the virtual machine only; ``date`` is of the newest index."""

    date: datetime.datetime
    recipe: str
    packages: tuple[DebianPackage, ...] = Field(min_length=1)
    machine: tuple[DebianPackage, ...] = ()

    @property
    def epoch(self) -> int:
        """Date in seconds since the epoch, used for everything built from the lock."""
        return int(self.date.timestamp())


def load_lock(path: Path = LOCK) -> DebianLock:
    return load_yaml(path, DebianLock, _REMAKE)


def write_lock(lock: DebianLock, path: Path) -> None:
    """Write a lock as JSON, one package per line."""
    lists = "".join(
        f',\n "{name}": [\n'
        + ",\n".join(f"  {json.dumps(package.model_dump(exclude_defaults=True))}" for package in packages)
        + "\n ]"
        for name, packages in (("packages", lock.packages), ("machine", lock.machine))
        if packages
    )
    head = json.dumps({"date": lock.date.isoformat(), "recipe": lock.recipe}, indent=1)[:-2]
    path.write_text(f"{head}{lists}\n}}\n", encoding="utf-8")


def check_current(lock: DebianLock, recipe: Recipe) -> None:
    if lock.recipe != recipe.debian_digest:
        names = recipe.debian_packages.keys() | recipe.machine.packages.keys()
        missing = sorted(names - {package.name for package in (*lock.packages, *lock.machine)})
        detail = f": it lacks {', '.join(missing)}" if missing else ""
        raise errors.ConfigError(
            f"debian.lock was made from other lists than environment.yaml and debian.txt{detail}", _REMAKE
        )


def mirrors(debian: DebianPart, option: str = "") -> dict[str, str]:
    """Return the URL of each archive: the folder with its ``dists`` and ``pool``.

    Args:
        option: URL of a mirror with the archives as folders, or with ``{archive}`` in place of their names;
            default: the sources of this machine's apt.
    """
    archives = sorted(set(debian.suites.values()))
    if option:
        if "://" not in option:
            raise errors.ConfigError(f"--mirror {option} is not a URL", "give --mirror http://HOST/{archive}")
        pattern = option if "{archive}" in option else option.rstrip("/") + "/{archive}"
        return {archive: pattern.replace("{archive}", archive).rstrip("/") for archive in archives}
    targets = run_tool(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"],
        error=errors.ProvisionError,
    )
    uris = dict(line.split(" ", 1) for line in reversed(targets.splitlines()))
    urls = {debian.suites[suite]: uris[suite].rstrip("/") for suite in debian.suites if suite in uris}
    missing = [archive for archive in archives if archive not in urls]
    if missing:
        raise errors.ProvisionError(
            f"this machine's apt has no source for {', '.join(missing)} with {', '.join(debian.suites)}",
            "name a Debian mirror: --mirror URL, the folder that has debian and debian-security in it",
        )
    return urls


def resolve(
    recipe: Recipe, bases: Mapping[str, str], current: DebianLock | None = None, update: str = ""
) -> DebianLock:
    """Select the newest packages of the recipe: essential, required and listed ones, and dependencies.

    Args:
        current: a lock whose versions are kept if the mirror still has them.
        update: package to update, with others that this forces.
    """
    with _empty_root(recipe.debian, bases) as apt:
        run_tool(
            [*apt, "apt-get", "-o", "APT::Update::Error-Mode=any", "update"],
            error=errors.ProvisionError,
            hint="is the mirror reachable? Name another with --mirror URL",
        )
        if current:
            _hold(apt, current, update)
        available = run_tool([*apt, "apt-cache", "dumpavail"], error=errors.ProvisionError).split("\n\n")
        required = "\n\n".join(stanza for stanza in available if _REQUIRED.search(stanza))
        base_system = set(re.findall(r"^Package: (.*)$", required, re.M))
        names = base_system | recipe.debian_packages.keys()
        packages = _choose(apt, bases, names)
        all_packages = _choose(apt, bases, names | recipe.machine.packages.keys())
        indices = (Path(apt[1].partition("=")[2]).parent / "var/lib/apt/lists").glob("*_InRelease")
        texts = (index.read_text(encoding="utf-8") for index in indices)
        dates = [
            email.utils.parsedate_to_datetime(d) for text in texts for d in re.findall(r"^Date: (.*)$", text, re.M)
        ]
        date = max(dates).astimezone(datetime.timezone.utc)
    if not set(packages) <= set(all_packages):
        # The machine must have all packages of the container.
        missing = ", ".join(sorted(package.name for package in set(packages) - set(all_packages)))
        raise errors.ProvisionError(
            f"environment.yaml: machine.packages conflict with {missing}", "choose others for the machine"
        )
    machine = tuple(package for package in all_packages if package not in set(packages))
    if current and (current.recipe, current.packages, current.machine) == (recipe.debian_digest, packages, machine):
        return current  # The date is in every layer: keep it if nothing has changed.
    return DebianLock(date=date, recipe=recipe.debian_digest, packages=packages, machine=machine)


def _hold(apt: Sequence[str], current: DebianLock, update: str) -> None:
    """Pin apt to the versions of a lock, except for packages that an update must change."""

    def newest(name: str) -> dict[str, str]:
        output = run_tool([*apt, "apt-cache", "show", "--no-all-versions", name], error=errors.ProvisionError)
        return dict(re.findall(r"^([A-Z][\w-]*): (.*)$", output, re.M))

    packages = (*current.packages, *current.machine)
    unpinned = packages_to_update(
        [update], {package.name: (package.source_package[0], package.version) for package in packages}, newest
    )
    (Path(apt[1].partition("=")[2]).parent / "etc/apt/preferences").write_text(
        "\n".join(
            f"Package: {package.name}\nPin: version {package.version}\nPin-Priority: 1001\n"
            for package in packages
            if package.name not in unpinned
        )
    )


def _choose(apt: Sequence[str], bases: Mapping[str, str], required: AbstractSet[str]) -> tuple[DebianPackage, ...]:
    uris = run_tool(
        [*apt, "apt-get", "install", "--print-uris", "--yes", "--quiet", *sorted(required)],
        error=errors.ProvisionError,
        hint="is every name in provision/debian.txt and environment.yaml a package of the suites?",
    )
    files = dict(_places(uris, bases))
    names = sorted({file.rpartition("/")[2].partition("_")[0] for file in files})
    output = run_tool([*apt, "apt-cache", "show", *names], error=errors.ProvisionError)
    packages = {file: _package(stanza, files) for stanza, file in _stanzas(output) if file in files}
    unknown = files.keys() - packages.keys()
    if unknown:
        raise errors.ProvisionError(f"apt shows no record of {', '.join(sorted(unknown))}")
    return tuple(sorted(packages.values(), key=lambda package: (package.name, package.architecture)))


@contextlib.contextmanager
def _empty_root(debian: DebianPart, bases: Mapping[str, str]) -> Iterator[list[str]]:
    """Create an empty root; yield the prefix of apt commands that use it."""
    with tempfile.TemporaryDirectory(prefix="utvm-apt-") as folder:
        root = Path(folder)
        for needed in ("etc/apt", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg"):
            (root / needed).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        (root / "etc/apt/sources.list").write_text(
            "".join(
                f"deb [arch={debian.architecture} signed-by={debian.keyring}] {bases[archive]} {suite} main\n"
                for suite, archive in debian.suites.items()
            )
        )
        # Keep this machine's network configuration (proxies, certificates), nothing else.
        network = run_tool(["apt-config", "dump", "Acquire"], error=errors.ProvisionError)
        config = root / "apt.conf"
        config.write_text(
            f'Dir "{root}";\nDir::State::status "{root}/var/lib/dpkg/status";\n'
            f'APT::Architecture "{debian.architecture}";\nAPT::Architectures {{ "{debian.architecture}"; }};\n'
            f'APT::Install-Recommends "0";\nAPT::Sandbox::User "root";\n{network}Acquire::Languages "none";\n'
        )
        yield ["env", f"APT_CONFIG={config}", "LC_ALL=C"]


def _places(uris: str, bases: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for uri in re.findall(r"^'([^']+)'", uris, re.M):
        # With the slash: one archive's name may be a prefix of another's.
        archive = next(name for name, base in bases.items() if uri.startswith(base + "/"))
        yield urllib.parse.unquote(uri.removeprefix(bases[archive] + "/")), archive


def _stanzas(output: str) -> Iterator[tuple[dict[str, str], str]]:
    for block in output.split("\n\n"):
        stanza = dict(re.findall(r"^(Package|Source|Version|Architecture|Filename|Size|SHA256): (.*)$", block, re.M))
        if stanza:
            yield stanza, stanza["Filename"]


def _package(stanza: Mapping[str, str], archives: Mapping[str, str]) -> DebianPackage:
    package = DebianPackage(
        name=stanza["Package"],
        version=stanza["Version"],
        architecture=stanza["Architecture"],
        archive=archives[stanza["Filename"]],
        file=stanza["Filename"],
        size=int(stanza["Size"]),
        sha256=stanza["SHA256"],
    )
    return package.model_copy(update={"source": _source(package, stanza.get("Source", package.name))})


def _source(package: DebianPackage, field: str) -> str:
    """Return name and version of the source package from ``Source``; empty if the package implies them."""
    name, _, version = field.partition(" ")
    source_package = name, version.strip("()") or package.version
    # Signed packages (the kernel) have a source of their own; advisories name the original one.
    if signed := re.fullmatch(r"(.+)-signed-[^-]+", name):
        source_package = signed[1], package.version
    return "" if package.source_package == source_package else " ".join(source_package)


_RELATION = re.compile(r"([^\s:(]+)(?::\w+)?\s*(?:\(\s*(<<|<=|=|>=|>>)\s*(\S+)\s*\))?")

Stanza = Mapping[str, str]
"""Index entry of a package: values by field."""


def packages_to_update(
    names: Sequence[str], locked: Mapping[str, tuple[str, str]], newest: Callable[[str], Stanza]
) -> set[str]:
    """Locked packages that must change together with the given ones; packages of one source change together."""
    unpinned: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in unpinned:
            continue
        unpinned.add(name)
        waiting += [other for other, (source, _) in locked.items() if source == locked[name][0]]
        waiting += _forced_by(newest(name), locked)
    return unpinned


def _forced_by(stanza: Stanza, locked: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for field in ("Pre-Depends", "Depends"):
        for clause in filter(None, stanza.get(field, "").split(",")):
            known = [relation for relation in map(_relation, clause.split("|")) if relation[0] in locked]
            if known and not any(_holds(*relation, locked) for relation in known):
                yield known[0][0]
    for field in ("Breaks", "Conflicts"):
        for name, operator, version in map(_relation, filter(None, stanza.get(field, "").split(","))):
            if operator and name in locked and _holds(name, operator, version, locked):
                yield name


def _relation(text: str) -> tuple[str, str, str]:
    match = _RELATION.match(text.strip())
    return (match[1], match[2] or "", match[3] or "") if match else ("", "", "")


def _holds(name: str, operator: str, version: str, locked: Mapping[str, tuple[str, str]]) -> bool:
    return not operator or compare_versions(locked[name][1], operator, version)


@functools.cache
def compare_versions(version: str, operator: str, other: str) -> bool:
    try:
        result = subprocess.run(
            ["dpkg", "--compare-versions", version, operator, other], capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise errors.ProvisionError(
            "dpkg is not installed, and only it compares Debian's versions", "run this on Debian, or --in docker"
        ) from error
    if result.returncode > 1 or result.stderr:
        raise errors.ConfigError(f"dpkg cannot compare {version} with {other}: {result.stderr.strip()}")
    return result.returncode == 0
