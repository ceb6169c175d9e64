# SPDX-License-Identifier: Apache-2.0
"""A place: the computer that a board of a farm is at. The whole job runs there, so that the probe stays local.

Who has the board is labgrid's to say; the board's own lock at its host keeps two runs apart where a lease is lost.
"""

import getpass
import hashlib
import platform
import secrets
import shlex
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from utvm.choice import PlaceChoice
from utvm.environment.farm.client import FarmClient, Lease, coordinator_of, leased
from utvm.environment.places.errand import Errand, Wanted, called
from utvm.environment.places.here import told_where
from utvm.environment.remote import LOST, owned, rsync, run_owned
from utvm.errors import VERDICTS, ConfigError, ExitCode, ProvisionError
from utvm.logs import log_folder
from utvm.paths import ROOT, work

_LEFT_OUT = ("/.git", "/.venv", "/build")
_SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")
_HANDOVER = 60  # Seconds in which a run that has lost its lease lets go of the board.

# The host's own Python packages, where they are those of the checkout's locks: else ./inv fetches them there.
_PACKAGES = """
own=$1; shift
if cmp -s provision/pylock.toml "$own/.venv/python.stamp" && cmp -s provision/debian.txt "$own/.venv/debian.stamp"
then export UTVM_VENV="$own/.venv" PYTHONPATH="$PWD"; fi
"""


class InFarm:
    """The computer of a leased board, as a :class:`utvm.environment.places.errand.Place`.

    Args:
        say: is told what is being done, and nothing when that is done and the command begins.
        choice: which farm, and which of its boards.
    """

    own_usb = True
    own_boards = True

    def __init__(self, say: Callable[[str], None], choice: PlaceChoice) -> None:
        self._say = say
        self._address = coordinator_of(choice.farm)
        self._tags = _tags(choice)

    def run(self, errand: Errand) -> int:
        """Lease a board, run a command at its computer, and bring home what it wrote.

        Raises:
            ConfigError: the farm has no such board.
            ProvisionError: no board can be had, the lease was lost, or the connection broke.
            KeyboardInterrupt: interrupted.
        """
        log = log_folder(work() / "logs" / f"farm-{secrets.token_hex(4)}") / "labgrid.log"
        wanted = errand.wanted
        with (
            FarmClient(self._address, log, self._say) as farm,
            leased(farm, _filters(wanted) | self._tags, wanted.wait or None, self._say) as lease,
        ):
            host = lease.service["address"]
            self._say(f"leased {lease.place} at {host} as {lease.holder}, after {lease.waited:.1f} s in line")
            self._say("")
            code = self._at_its_host(errand, lease)
            lease.outcome = "verdict" if code in VERDICTS else ""
            if lease.lost or code in (LOST, ExitCode.INFRASTRUCTURE):
                lease.outcome = "infrastructure"
        if lease.lost:
            raise ProvisionError(f"the lease of {lease.place} was lost: {lease.lost}", "start again")
        if code == LOST:
            raise ProvisionError(f"the connection to {host} broke", "is that host well?")
        return code

    def _at_its_host(self, errand: Errand, lease: Lease) -> int:
        """Run a command where the board is."""
        options = [f"--{lease.board['kind']}"] if lease.board["kind"] in ("physical", "virtual") else []
        options += [f"--serial={lease.board['serial']}"] if lease.board["serial"] else []
        options += [f"--wait={_HANDOVER}"]
        login = _login(lease)
        if not login:
            words = errand.command({path: str(path) for path in errand.folders}, str(ROOT))
            return _run(owned(str(ROOT), [*_set(told_where("farm", {})), *words, *options]), lease)
        # A folder for each checkout that comes from somewhere: its builds are kept from run to run.
        whose = hashlib.sha256(f"{platform.node()}:{ROOT}".encode()).hexdigest()[:12]
        base = PurePosixPath(lease.board["work"]) / whose
        checkout, own = str(base / "utvm"), base / f"run-{secrets.token_hex(4)}"
        places = called(errand, own, checkout)
        over, target = login[:-1], login[-1]
        left_out = [f"--exclude={name}" for name in _LEFT_OUT]
        left_out += ["--mkpath", "--delete", "--filter=:- .gitignore"]
        rsync(over, *left_out, f"{ROOT}/", f"{target}:{checkout}/")
        for folder in set(errand.folders) - set(errand.fills):
            if ROOT not in folder.parents:
                rsync(over, "--mkpath", "--exclude=/.git", f"{folder}/", f"{target}:{places[folder]}/")
        told = told_where("farm", {str(ROOT): checkout} | {str(path): name for path, name in places.items()})
        words = [lease.board["checkout"], *_set(told), *errand.command(places, checkout), *options]
        # It may end before it has written anything.
        first = f"mkdir -p {shlex.join(places[folder] for folder in errand.fills)}\n{_PACKAGES}"
        try:
            return _run([*login, shlex.join(owned(checkout, words, first))], lease)
        finally:
            for folder in errand.fills:
                folder.mkdir(parents=True, exist_ok=True)
                rsync(over, f"{target}:{places[folder]}/", f"{folder}/")
            run_owned([*login, shlex.join(["rm", "-rf", str(own)])])


def _run(command: Sequence[str], lease: Lease) -> int:
    return run_owned(command, begun=lease.when_lost)


def _set(variables: dict[str, str]) -> list[str]:
    return ["env", *(f"{name}={value}" for name, value in variables.items())]


def _login(lease: Lease) -> list[str]:
    """Return the ssh command and whom it is for; nothing where that is this computer, and we are its user."""
    host, user = str(lease.service["address"]), str(lease.service["username"])
    if host in ("localhost", "127.0.0.1", platform.node()) and user == getpass.getuser():
        return []
    return [*_SSH, f"-p{lease.service.get('port', 22)}", f"{user}@{host}"]


def _filters(wanted: Wanted) -> dict[str, str]:
    """Return the tags that a wanted board has."""
    said = {"kind": "" if wanted.wish == "auto" else wanted.wish, "serial": wanted.serial}
    return {"health": "ok", "board": wanted.board.spoken} | {name: value for name, value in said.items() if value}


def _tags(choice: PlaceChoice) -> dict[str, str]:
    """Return what the options say of the place.

    Raises:
        ConfigError: that is no tag.
    """
    found = {"name": choice.place} if choice.place else {}
    for word in filter(None, choice.tags.split(",")):
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"--tags {word!r} is no tag", "give NAME=VALUE, with commas between several")
        found[name.strip()] = value.strip()
    return found
