# SPDX-License-Identifier: Apache-2.0
"""A place: the computer that a board of a farm is at. The whole job runs there, so that the probe stays local.

Who has the board is labgrid's to say; the board's own lock at its host keeps two runs apart where a lease is lost.
"""

import contextlib
import getpass
import hashlib
import platform
import secrets
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from utvm.base.log.setup import log_folder
from utvm.base.process.run import run_tool
from utvm.boards import Board
from utvm.environment.locations.remote_command import RemoteCommand, called
from utvm.environment.remote import LOST, owned, rsync, run_owned
from utvm.errors import VERDICTS, ConfigError, ExitCode, ProvisionError
from utvm.farm.client import Leasing, coordinator_of
from utvm.paths import ROOT, work
from utvm.provenance.lease import Lease, inherited_lease
from utvm.provenance.location import location_variables
from utvm.selection import BoardSelection, FarmChoice

_LEFT_OUT = ("/.git", "/.venv", "/build")
_SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")
_HANDOVER = 60  # Seconds in which a run that has lost its lease lets go of the board.
_HELD = 75  # What flock ends with where it has not.

# The host's own Python packages, where they are those of the checkout's locks: else ./inv fetches them there.
_PACKAGES = """
own=$1; shift
if cmp -s provision/pylock.toml "$own/.venv/python.stamp" && cmp -s provision/debian.txt "$own/.venv/debian.stamp"
then export UTVM_VENV="$own/.venv"; fi
"""


class InFarm:
    """The computer of a leased board, as a :class:`utvm.environment.locations.remote_command.Place`.

    Args:
        say: is told what is being done, and nothing when that is done and the command begins.
        choice: which farm, and which of its boards.
    """

    own_usb = True
    own_boards = True

    def __init__(self, say: Callable[[str], None], choice: FarmChoice) -> None:
        self._say = say
        self._address = coordinator_of(choice.farm)
        self._choice = choice
        required_tags(choice)

    def run(self, errand: RemoteCommand) -> int:
        """Lease a board, run a command at its computer, and bring home what it wrote."""
        if lease := inherited_lease():
            code = self.at_its_host(errand, lease)
            if code == LOST:
                raise ProvisionError(f"the connection to {lease.host} broke", "is that host well?")
            return code
        code, earlier = self._leased(errand, ())
        while earlier:
            self._say(f"{earlier[-1]['place']}: {earlier[-1]['why']}; once more, on another board")
            code, earlier = self._leased(errand, earlier)
        return code

    def _leased(
        self, errand: RemoteCommand, earlier: Sequence[Mapping[str, str]]
    ) -> tuple[int, Sequence[Mapping[str, str]]]:
        """Run a command on a board; return its exit code, and where another board is to be tried, why."""
        log = log_folder(work() / "logs" / f"farm-{secrets.token_hex(4)}") / "labgrid.log"
        wish = required_tags(self._choice, errand.board, errand.selection)
        wait = errand.selection.wait or None
        but = [each["place"] for each in earlier]
        with Leasing(self._address, wish, wait, log, self._say, but) as leasing:
            lease = leasing.had()
            lease.earlier = earlier
            host = lease.host
            self._say(f"leased {lease.place} at {host} as {lease.holder}, after {lease.waited:.1f} s in line")
            self._say("")
            why = "the run ended without a verdict"
            try:
                code = self.at_its_host(errand, lease)
                if code == LOST:
                    why = f"the connection to {host} broke"
                elif code == _HELD:
                    code, why = LOST, f"at {host}, a run before still has {lease.place}"
                elif code not in {*ExitCode}:
                    code, why = LOST, f"the run at {host} came to no end of its own: exit code {code}"
            except ProvisionError as error:
                code, why = LOST, error.message
            if lease.lost:
                code, why = LOST, f"the lease of {lease.place} was lost: {lease.lost}"
            lease.outcome = "verdict" if code in VERDICTS else ""
            if code in (LOST, ExitCode.INFRASTRUCTURE):
                lease.outcome = "infrastructure"
        if lease.outcome == "infrastructure" and lease.others and not earlier:
            return code, lease.earlier_with(why)
        if code == LOST:
            raise ProvisionError(why, "./inv farm.list shows how the boards are")
        return code, ()

    def at_its_host(
        self, errand: RemoteCommand, lease: Lease, ways: Sequence[str] = (), log: IO[bytes] | None = None
    ) -> int:
        """Run a command where the board is, and return its exit code; ``LOST`` where the connection broke.

        Args:
            ways: words by which ssh is told to lead ports there and back.
            log: the file that has what it prints; None for where we print.
        """
        options = [f"--{lease.board['kind']}"] if lease.board["kind"] in ("physical", "virtual") else []
        options += [f"--serial={lease.board['serial']}"] if lease.board["serial"] else []
        options += [f"--wait={_HANDOVER}"]
        login = login_to(lease)
        if not login:
            told = location_variables("farm", {}) | lease.variables()
            words = [
                *_set(told),
                *errand.command({path: str(path) for path in errand.folders}, str(ROOT)),
                *options,
            ]
            first = f"mkdir -p {shlex.quote(lease.board['work'])}\n"
            return _run(owned(str(ROOT), _alone(lease, "/dev/null", words), first), lease, log)
        # A folder for each checkout that comes from somewhere: its builds are kept from run to run.
        whose = hashlib.sha256(f"{platform.node()}:{ROOT}".encode()).hexdigest()[:12]
        base = PurePosixPath(lease.board["work"]) / whose
        checkout, own = str(base / "utvm"), base / f"run-{secrets.token_hex(4)}"
        places = called(errand, own, checkout)
        over, target = login[:-1], login[-1]
        _send_checkout(over, target, base)
        for path in set(errand.folders) - set(errand.fills):
            if path.is_file():
                rsync(over, "--mkpath", str(path), f"{target}:{places[path]}")
            elif path.is_dir() and ROOT not in path.parents:
                rsync(over, "--mkpath", "--exclude=/.git", f"{path}/", f"{target}:{places[path]}/")
        told = location_variables(
            "farm", {str(ROOT): checkout} | {str(path): name for path, name in places.items()}
        )
        told |= lease.variables()
        # Where the connection breaks as it ends, what it ended with is asked for.
        ended = f"{own}/exit-code"
        words = _alone(lease, ended, [*_set(told), *errand.command(places, checkout), *options])
        # It may end before it has written anything.
        made = [places[folder] for folder in errand.fills]
        made += [str(PurePosixPath(places[file]).parent) for file in errand.writes]
        first = f"mkdir -p {shlex.join([checkout, *made])}\n{_PACKAGES}"
        first += f"mkdir -p {shlex.quote(str(own))}\n"
        words = [lease.board["checkout"], *words]
        try:
            command = [*over, *ways, target, shlex.join(owned(checkout, words, first))]
            return _ended(command, [*login, shlex.join(["cat", ended])], lease, log)
        finally:
            for folder in errand.fills:
                _brought_home(over, f"{target}:{places[folder]}/", folder)
            for file in errand.writes:
                rsync(over, "--ignore-missing-args", f"{target}:{places[file]}", str(file))
            run_owned([*login, shlex.join(["rm", "-rf", str(own)])])


def _send_checkout(over: Sequence[str], target: str, base: PurePosixPath) -> None:
    """Have this checkout at a board's host, below a folder there; only one at a time is sent."""
    left_out = [f"--exclude={name}" for name in _LEFT_OUT]
    left_out += ["--delete", "--filter=:- .gitignore"]
    there = shlex.quote(str(base))
    left_out.append(f"--rsync-path=mkdir -p {there} && flock {there}/sync.lock rsync")
    rsync(over, *left_out, f"{ROOT}/", f"{target}:{base / 'utvm'}/")


def _brought_home(over: Sequence[str], source: str, folder: Path) -> None:
    """Fetch what a folder of a board's host has. Each thing in it appears here whole, or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".arriving-", dir=folder) as draft:
            rsync(over, source, f"{draft}/")
            # What points at another one comes last.
            for each in sorted(Path(draft).iterdir(), key=Path.is_symlink):
                each.replace(folder / each.name)
    except OSError as error:
        why = error.strerror or error
        raise ProvisionError(f"{folder}: cannot be written: {why}", "is there room?") from error


# Waits until nobody else has the board. Told to end, it waits for what it runs: that may have come to a verdict.
_ALONE = f"""trap : TERM
ended=$0; exec 9>>"$1"; shift
flock --timeout={_HANDOVER} --conflict-exit-code={_HELD} 9 || exit
"$@"; code=$?
echo $code >"$ended"; exit $code"""


def _alone(lease: Lease, ended: str, words: Sequence[str]) -> list[str]:
    """Return the command that has a board of whatever kind for itself: a run that has lost it may be letting go.

    Args:
        ended: the file that gets its exit code.
    """
    return ["sh", "-c", _ALONE, ended, f"{lease.board['work']}/{lease.place}.lock", *words]


def _run(command: Sequence[str], lease: Lease, log: IO[bytes] | None) -> int:
    return run_owned(command, begun=lease.when_lost, log=log)


def _ended(command: Sequence[str], ask: Sequence[str], lease: Lease, log: IO[bytes] | None) -> int:
    """Return what a command at a board's host ended with.

    Args:
        ask: the command that prints it, where the connection broke.
    """
    try:
        code = _run(command, lease, log)
        return code if 0 <= code < LOST else _said(ask)
    except KeyboardInterrupt:
        # Interrupted again while it was told to end: it may have come to its verdict before.
        code = _said(ask)
        if code not in VERDICTS:
            raise
        return code


def _said(command: Sequence[str]) -> int:
    with contextlib.suppress(ProvisionError, ValueError):
        return int(run_tool(command, error=ProvisionError, timeout=30))
    return LOST


def _set(variables: dict[str, str]) -> list[str]:
    return ["env", *(f"{name}={value}" for name, value in variables.items())]


def login_to(lease: Lease) -> list[str]:
    """Return the ssh command and whom it is for; nothing where that is this computer, and we are its user."""
    host, user = str(lease.service["address"]), str(lease.service["username"])
    if host in ("localhost", "127.0.0.1", platform.node()) and user == getpass.getuser():
        return []
    return [*_SSH, f"-p{lease.service.get('port', 22)}", f"{user}@{host}"]


def required_tags(
    choice: FarmChoice, board: Board | None = None, selection: BoardSelection | None = None
) -> dict[str, str]:
    """Labgrid tags that a place must have, for a board and the ``--tags`` and ``--place`` options."""
    tags = {}
    if board and selection:
        kind = "" if selection.kind == "auto" else selection.kind
        options = {"kind": kind, "serial": selection.serial, "name": choice.place}
        tags = {"health": "ok", "board": board.full_name}
        tags |= {name: value for name, value in options.items() if value}
    for word in filter(None, choice.tags.split(",")):
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"--tags {word!r} is no tag", "give NAME=VALUE, with commas between several")
        tags[name.strip()] = value.strip()
    return tags
