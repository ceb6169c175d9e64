# SPDX-License-Identifier: Apache-2.0
"""The Debian half of the lock: which packages exactly, resolved by apt in a root of its own that has none.

The hashes are those of the indices that the archive's keyring signs, so whoever serves the files later, a mirror
or a copy on a disk, need not be trusted.
"""

import contextlib
import datetime
import email.utils
import json
import re
import subprocess
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from pydantic import Field

from utvm.base.process.run import run_tool
from utvm.base.storage.config import Record, load_yaml
from utvm.environment.recipe import PROVISION, DebianPart, Recipe
from utvm.errors import ConfigError, ProvisionError

LOCK = PROVISION / "debian.lock"
_REMAKE = "./inv env.lock makes it"


class DebianPackage(Record):
    """One package file: ``file`` is its place in ``archive``, a folder of a Debian mirror.

    ``source`` is the name and version of the source package, where they do not follow from the others.
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
    def made_from(self) -> tuple[str, str]:
        """Name and version of the source package."""
        if self.source:
            name, _, version = self.source.partition(" ")
            return name, version
        # A mirror keeps packages in folders called after their sources; +b is for those that were only built anew.
        return self.file.split("/")[-2], re.sub(r"\+b\d+$", "", self.version)


class DebianLock(Record):
    """All packages, sorted by name; ``date`` is that of the newest index they were chosen from.

    ``machine`` are those that only the virtual machine has, beside all others.
    """

    date: datetime.datetime
    recipe: str
    packages: tuple[DebianPackage, ...] = Field(min_length=1)
    machine: tuple[DebianPackage, ...] = ()

    @property
    def epoch(self) -> int:
        """The date in seconds since 1970: what everything made from the lock is dated with."""
        return int(self.date.timestamp())


def load_lock(path: Path = LOCK) -> DebianLock:
    """Read a lock."""
    return load_yaml(path, DebianLock, _REMAKE)


def write_lock(lock: DebianLock, path: Path) -> None:
    """Write a lock: JSON, a package a line, so that version control shows which ones change."""
    lists = "".join(
        f',\n "{name}": [\n'
        + ",\n".join(f"  {json.dumps(one.model_dump(exclude_defaults=True))}" for one in packages)
        + "\n ]"
        for name, packages in (("packages", lock.packages), ("machine", lock.machine))
        if packages
    )
    head = json.dumps({"date": lock.date.isoformat(), "recipe": lock.recipe}, indent=1)[:-2]
    path.write_text(f"{head}{lists}\n}}\n", encoding="utf-8")


def check_current(lock: DebianLock, recipe: Recipe) -> None:
    """Check that the lock was resolved from this recipe."""
    if lock.recipe != recipe.debian_digest:
        wanted = recipe.debian_packages.keys() | recipe.machine.packages.keys()
        missing = sorted(wanted - {package.name for package in (*lock.packages, *lock.machine)})
        detail = f": it lacks {', '.join(missing)}" if missing else ""
        raise ConfigError(
            f"debian.lock was made from other lists than environment.yaml and debian.txt{detail}", _REMAKE
        )


def mirrors(debian: DebianPart, option: str = "") -> dict[str, str]:
    """Return where each archive is found: the URL of the folder that has its ``dists`` and ``pool``.

    Args:
        option: URL of a mirror that has the archives as folders, or with ``{archive}`` where their names go;
            without it, what this machine's own apt uses.
    """
    archives = sorted(set(debian.suites.values()))
    if option:
        if "://" not in option:
            raise ConfigError(f"--mirror {option} is no URL", "for example --mirror http://HOST/{archive}")
        pattern = option if "{archive}" in option else option.rstrip("/") + "/{archive}"
        return {archive: pattern.replace("{archive}", archive).rstrip("/") for archive in archives}
    said = run_tool(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages"],
        error=ProvisionError,
    )
    used = dict(line.split(" ", 1) for line in reversed(said.splitlines()))
    found = {debian.suites[suite]: used[suite].rstrip("/") for suite in debian.suites if suite in used}
    lacking = [archive for archive in archives if archive not in found]
    if lacking:
        raise ProvisionError(
            f"this machine's apt has no source for {', '.join(lacking)} with {', '.join(debian.suites)}",
            "name a Debian mirror: --mirror URL, the folder that has debian and debian-security in it",
        )
    return found


def resolve(
    recipe: Recipe, bases: Mapping[str, str], held: DebianLock | None = None, update: str = ""
) -> DebianLock:
    """Choose the newest packages that satisfy the recipe: those that Debian marks as essential or required, those
    it lists, and what they depend on; nothing that is merely recommended.

    Args:
        bases: where each archive is found, see :func:`mirrors`.
        held: a lock whose versions stay where the mirror still has them.
        update: the package of it that shall be newer, with what that forces.
    """
    with _empty_root(recipe.debian, bases) as apt:
        run_tool(
            [*apt, "apt-get", "-o", "APT::Update::Error-Mode=any", "update"],
            error=ProvisionError,
            hint="is the mirror reachable? Name another with --mirror URL",
        )
        if held:
            _hold(apt, held, update)
        base_system = _required_names(run_tool([*apt, "apt-cache", "dumpavail"], error=ProvisionError))
        wanted = base_system | recipe.debian_packages.keys()
        packages = _choose(apt, bases, wanted)
        more = _choose(apt, bases, wanted | recipe.machine.packages.keys())
        date = _newest_index(Path(apt[1].partition("=")[2]).parent)
    if not set(packages) <= set(more):
        # One that needs the place of another: the machine could not be the container and something more.
        lost = ", ".join(sorted(package.name for package in set(packages) - set(more)))
        raise ProvisionError(
            f"environment.yaml: machine.packages push out {lost}", "choose others for the machine"
        )
    machine = tuple(package for package in more if package not in set(packages))
    if held and (held.recipe, held.packages, held.machine) == (recipe.debian_digest, packages, machine):
        return held  # Its date is in every layer: where nothing is newer, it stays.
    return DebianLock(date=date, recipe=recipe.debian_digest, packages=packages, machine=machine)


def _hold(apt: Sequence[str], held: DebianLock, update: str) -> None:
    """Have apt prefer the versions of a lock, but for those that an update needs newer."""

    def newest(name: str) -> dict[str, str]:
        shown = run_tool([*apt, "apt-cache", "show", "--no-all-versions", name], error=ProvisionError)
        return dict(re.findall(r"^([A-Z][\w-]*): (.*)$", shown, re.M))

    packages = (*held.packages, *held.machine)
    free = packages_to_update(
        [update], {each.name: (each.made_from[0], each.version) for each in packages}, newest
    )
    (Path(apt[1].partition("=")[2]).parent / "etc/apt/preferences").write_text(
        "\n".join(
            f"Package: {each.name}\nPin: version {each.version}\nPin-Priority: 1001\n"
            for each in packages
            if each.name not in free
        )
    )


def _choose(apt: Sequence[str], bases: Mapping[str, str], wanted: AbstractSet[str]) -> tuple[DebianPackage, ...]:
    """Return what apt would install for these names, sorted by name."""
    uris = run_tool(
        [*apt, "apt-get", "install", "--print-uris", "--yes", "--quiet", *sorted(wanted)],
        error=ProvisionError,
        hint="is every name in provision/debian.txt and environment.yaml a package of the suites?",
    )
    files = dict(_places(uris, bases))
    names = sorted({file.rpartition("/")[2].partition("_")[0] for file in files})
    shown = run_tool([*apt, "apt-cache", "show", *names], error=ProvisionError)
    packages = {file: _package(stanza, files) for stanza, file in _stanzas(shown) if file in files}
    unknown = files.keys() - packages.keys()
    if unknown:
        raise ProvisionError(f"apt shows no record of {', '.join(sorted(unknown))}")
    return tuple(sorted(packages.values(), key=lambda package: (package.name, package.architecture)))


@contextlib.contextmanager
def _empty_root(debian: DebianPart, bases: Mapping[str, str]) -> Iterator[list[str]]:
    """Make a root without packages, and yield the words before an apt command that works on it."""
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
        # This machine's way to the network counts (proxies, certificates), its other preferences do not.
        network = run_tool(["apt-config", "dump", "Acquire"], error=ProvisionError)
        config = root / "apt.conf"
        config.write_text(
            f'Dir "{root}";\nDir::State::status "{root}/var/lib/dpkg/status";\n'
            f'APT::Architecture "{debian.architecture}";\nAPT::Architectures {{ "{debian.architecture}"; }};\n'
            f'APT::Install-Recommends "0";\nAPT::Sandbox::User "root";\n{network}Acquire::Languages "none";\n'
        )
        yield ["env", f"APT_CONFIG={config}", "LC_ALL=C"]


def _required_names(available: str) -> set[str]:
    wanted = re.compile(r"^(Essential: yes|Priority: required)$", re.M)
    stanzas = (stanza for stanza in available.split("\n\n") if wanted.search(stanza))
    return {found[1] for found in (re.search(r"^Package: (.*)$", stanza, re.M) for stanza in stanzas) if found}


def _places(uris: str, bases: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield file and archive of every URI that apt would fetch."""
    for uri in re.findall(r"^'([^']+)'", uris, re.M):
        # With the slash: the name of one archive may begin with that of another.
        archive = next(name for name, base in bases.items() if uri.startswith(base + "/"))
        yield urllib.parse.unquote(uri.removeprefix(bases[archive] + "/")), archive


def _stanzas(shown: str) -> Iterator[tuple[dict[str, str], str]]:
    for block in shown.split("\n\n"):
        stanza = dict(
            re.findall(r"^(Package|Source|Version|Architecture|Filename|Size|SHA256): (.*)$", block, re.M)
        )
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


def _source(package: DebianPackage, said: str) -> str:
    """Return what a package is made from, where it does not follow from its name and version.

    Args:
        said: its index's field ``Source``: a name, and a version in brackets where it is another than its own.
    """
    name, _, version = said.partition(" ")
    made_from = name, version.strip("()") or package.version
    # What is signed (the kernel) is repackaged, with the version of what was signed; faults are its source's.
    if signed := re.fullmatch(r"(.+)-signed-[^-]+", name):
        made_from = signed[1], package.version
    return "" if package.made_from == made_from else " ".join(made_from)


def _newest_index(root: Path) -> datetime.datetime:
    dates = [
        email.utils.parsedate_to_datetime(found)
        for index in (root / "var/lib/apt/lists").glob("*_InRelease")
        for found in re.findall(r"^Date: (.*)$", index.read_text(encoding="utf-8"), re.M)
    ]
    return max(dates).astimezone(datetime.timezone.utc)


_RELATION = re.compile(r"([^\s:(]+)(?::\w+)?\s*(?:\(\s*(<<|<=|=|>=|>>)\s*(\S+)\s*\))?")

Stanza = Mapping[str, str]
"""What an index says of a package: field to value."""


def packages_to_update(
    names: Sequence[str], locked: Mapping[str, tuple[str, str]], newest: Callable[[str], Stanza]
) -> set[str]:
    """Return which of the locked packages may be newer than they are locked, if these names shall be.

    What is made from the same source goes together: Debian's dependencies count on it.

    Args:
        locked: name to source and version.
        newest: says what the index has of a package.
    """
    free: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in free:
            continue
        free.add(name)
        waiting += [each for each, (source, _) in locked.items() if source == locked[name][0]]
        waiting += _forced_by(newest(name), locked)
    return free


def _forced_by(stanza: Stanza, locked: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for field in ("Pre-Depends", "Depends"):
        for clause in filter(None, stanza.get(field, "").split(",")):
            known = [each for each in map(_relation, clause.split("|")) if each[0] in locked]
            if known and not any(_holds(*each, locked) for each in known):
                yield known[0][0]
    for field in ("Breaks", "Conflicts"):
        for name, operator, version in map(_relation, filter(None, stanza.get(field, "").split(","))):
            if operator and name in locked and _holds(name, operator, version, locked):
                yield name


def _relation(text: str) -> tuple[str, str, str]:
    found = _RELATION.match(text.strip())
    return (found[1], found[2] or "", found[3] or "") if found else ("", "", "")


def _holds(name: str, operator: str, version: str, locked: Mapping[str, tuple[str, str]]) -> bool:
    """Return whether a dependency is met."""
    if not operator:
        return True
    try:
        words = ["dpkg", "--compare-versions", locked[name][1], operator, version]
        return subprocess.run(words, check=False, capture_output=True).returncode == 0
    except FileNotFoundError as error:
        raise ProvisionError("dpkg is not installed, and only it compares Debian's versions") from error
