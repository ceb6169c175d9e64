# SPDX-License-Identifier: Apache-2.0
"""Runs at the host of a farm's board: of one command, or of servers for a tracker.

The whole run happens there, so that the probe stays local. labgrid grants leases; the board's own lock at its host
separates two runs if a lease is lost.
"""

import contextlib
import getpass
import hashlib
import platform
import secrets
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from utvm.base.log import log_folder
from utvm.base.process import free_port, last_lines, run_tool
from utvm.base.storage.files import open_regular
from utvm.boards import Board
from utvm.environment.remote import LOST, RemoteCommand, bound_command, remote_paths, rsync, run_bound
from utvm.errors import VERDICTS, ConfigError, ExitCode, ProvisionError, UtvmError
from utvm.farm import client, hosted
from utvm.paths import ROOT, work
from utvm.provenance.location import Lease, inherited_lease, location_variables
from utvm.selection import BoardSelection, FarmChoice

_EXCLUDED = ("/.git", "/.venv", "/build")
_SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")
_HANDOVER = 60  # Seconds for a run that has lost its lease to release the board.
_HELD = 75  # Exit code of flock on timeout.

# Use the host's own Python packages if they match the checkout's locks; else ./inv fetches packages there.
_PACKAGES = """
own=$1; shift
if cmp -s provision/pylock.toml "$own/.venv/python.stamp" && cmp -s provision/debian.txt "$own/.venv/debian.stamp"
then export UTVM_VENV="$own/.venv"; fi
"""

# Wait until the board is free. On SIGTERM, wait for the command: it may have reached a verdict.
_ALONE = f"""trap : TERM
ended=$0; exec 9>>"$1"; shift
flock --timeout={_HANDOVER} --conflict-exit-code={_HELD} 9 || exit
"$@"; code=$?
echo $code >"$ended"; exit $code"""


class InFarm:
    """The host of a leased board, as a :class:`utvm.environment.remote.RemoteLocation`."""

    has_usb = chooses_board = True

    def __init__(self, say: Callable[[str], None], choice: FarmChoice) -> None:
        self._say = say
        self._address = client.coordinator_address()
        self._choice = choice
        required_tags(choice)

    def run(self, command: RemoteCommand) -> int:
        if lease := inherited_lease():
            code = self.run_at_host(command, lease)
            if code == LOST:
                raise ProvisionError(f"the connection to {lease.host} broke", "check that host")
            return code
        log = log_folder(work() / "logs" / f"farm-{secrets.token_hex(4)}") / "labgrid.log"
        tags = required_tags(self._choice, command.board, command.selection)
        with client.LeaseHolder(self._address, tags, command.selection.wait or None, log, self._say) as holder:
            while True:
                lease = holder.wait()
                self._say(f"leased {lease.place} at {lease.host} as {lease.holder}, after {lease.waited:.1f} s in line")
                self._say("")
                code, reason = self._run_once(command, lease)
                if lease.outcome != "infrastructure" or not holder.retry(reason):
                    break
                self._say(f"{lease.place}: {holder.earlier[-1]['why']}; once more, on another board")
        if code == LOST:
            raise ProvisionError(reason, "./inv farm.list shows the state of all boards")
        return code

    def _run_once(self, command: RemoteCommand, lease: Lease) -> tuple[int, str]:
        reason = "the run ended without a verdict"
        try:
            code = self.run_at_host(command, lease)
            if code == LOST:
                reason = f"the connection to {lease.host} broke"
            elif code == _HELD:
                code, reason = LOST, f"at {lease.host}, an earlier run still uses {lease.place}"
            elif code not in {*ExitCode}:
                code, reason = LOST, f"the run at {lease.host} ended abnormally: exit code {code}"
        except ProvisionError as error:
            code, reason = LOST, error.message
        if lease.lost:
            code, reason = LOST, f"the lease of {lease.place} was lost: {lease.lost}"
        lease.outcome = "verdict" if code in VERDICTS else ""
        if code in (LOST, ExitCode.INFRASTRUCTURE):
            lease.outcome = "infrastructure"
        return code, reason

    def run_at_host(
        self, command: RemoteCommand, lease: Lease, ssh_options: Sequence[str] = (), log: IO[bytes] | None = None
    ) -> int:
        """Run a command at the board's host; return its exit code, or ``LOST`` if the connection broke."""
        options = [f"--{lease.board['kind']}"] if lease.board["kind"] in ("physical", "virtual") else []
        options += [f"--serial={lease.board['serial']}"] if lease.board["serial"] else []
        options += [f"--wait={_HANDOVER}"]
        login = login_to(lease)
        if not login:
            variables = location_variables("farm", {}) | lease.variables()
            argv = command.argv({path: str(path) for path in command.paths}, str(ROOT))
            words = _lock_board(lease, "/dev/null", variables, [*argv, *options])
            first = f"mkdir -p {shlex.quote(lease.board['work'])}\n"
            return run_bound(bound_command(str(ROOT), words, first), on_start=lease.when_lost, log=log)
        # A folder per checkout keeps its builds from run to run.
        digest = hashlib.sha256(f"{platform.node()}:{ROOT}".encode()).hexdigest()[:12]
        base = PurePosixPath(lease.board["work"]) / digest
        checkout, run_folder = str(base / "utvm"), base / f"run-{secrets.token_hex(4)}"
        paths = remote_paths(command, run_folder, checkout)
        ssh, target = login[:-1], login[-1]
        _send_checkout(ssh, target, base)
        for path in set(command.paths) - set(command.output_folders):
            if path.is_file():
                rsync(ssh, "--mkpath", str(path), f"{target}:{paths[path]}")
            elif path.is_dir() and ROOT not in path.parents:
                rsync(ssh, "--mkpath", "--exclude=/.git", f"{path}/", f"{target}:{paths[path]}/")
        folders = {str(ROOT): checkout} | {str(path): name for path, name in paths.items()}
        variables = location_variables("farm", folders) | lease.variables()
        # If the connection breaks at the end, the exit code is read from this file.
        exit_code = f"{run_folder}/exit-code"
        words = _lock_board(lease, exit_code, variables, [*command.argv(paths, checkout), *options])
        # The command may end before it has written anything.
        dirs = [paths[folder] for folder in command.output_folders]
        dirs += [str(PurePosixPath(paths[file]).parent) for file in command.output_files]
        first = f"mkdir -p {shlex.join([checkout, *dirs])}\n{_PACKAGES}mkdir -p {shlex.quote(str(run_folder))}\n"
        words = [lease.board["checkout"], *words]
        try:
            remote = [*ssh, *ssh_options, target, shlex.join(bound_command(checkout, words, first))]
            return _run_over_ssh(remote, [*login, shlex.join(["cat", exit_code])], lease, log)
        finally:
            for folder in command.output_folders:
                _fetch(ssh, f"{target}:{paths[folder]}/", folder)
            for file in command.output_files:
                rsync(ssh, "--ignore-missing-args", f"{target}:{paths[file]}", str(file))
            run_bound([*login, shlex.join(["rm", "-rf", str(run_folder)])])


def _send_checkout(ssh: Sequence[str], target: str, base: PurePosixPath) -> None:
    """Copy this checkout into a folder of a board's host; concurrent copies wait for each other."""
    folder = shlex.quote(str(base))
    options = [f"--exclude={name}" for name in _EXCLUDED] + ["--delete", "--filter=:- .gitignore"]
    options.append(f"--rsync-path=mkdir -p {folder} && flock {folder}/sync.lock rsync")
    rsync(ssh, *options, f"{ROOT}/", f"{target}:{base / 'utvm'}/")


def _fetch(ssh: Sequence[str], source: str, folder: Path) -> None:
    """Fetch the contents of a folder, each entry atomically."""
    with ProvisionError.on_os_error(f"{folder}: cannot be written", "check its permissions and the free space"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".arriving-", dir=folder) as temporary:
            rsync(ssh, source, f"{temporary}/")
            # Links come last, after their targets.
            for entry in sorted(Path(temporary).iterdir(), key=Path.is_symlink):
                entry.replace(folder / entry.name)


def _lock_board(lease: Lease, exit_code: str, variables: dict[str, str], words: Sequence[str]) -> list[str]:
    """Return a command that runs another under the board's lock: a run that lost the board may still use it."""
    lock = f"{lease.board['work']}/{lease.place}.lock"
    environment = ["env", *(f"{name}={value}" for name, value in variables.items())]
    return ["sh", "-c", _ALONE, exit_code, lock, *environment, *words]


def _run_over_ssh(command: Sequence[str], read_exit_code: Sequence[str], lease: Lease, log: IO[bytes] | None) -> int:
    """Return the exit code of a command at a board's host; if the connection broke, a second command reads it."""
    try:
        code = run_bound(command, on_start=lease.when_lost, log=log)
        return code if 0 <= code < LOST else _read_exit_code(read_exit_code)
    except KeyboardInterrupt:
        # Interrupted again while ending: it may have reached its verdict before.
        code = _read_exit_code(read_exit_code)
        if code not in VERDICTS:
            raise
        return code


def _read_exit_code(command: Sequence[str]) -> int:
    with contextlib.suppress(ProvisionError, ValueError):
        return int(run_tool(command, error=ProvisionError, timeout=30))
    return LOST


def login_to(lease: Lease) -> list[str]:
    """Return the ssh command to a board's host; empty for this computer and user."""
    host, user = str(lease.service["address"]), str(lease.service["username"])
    if host in ("localhost", "127.0.0.1", platform.node()) and user == getpass.getuser():
        return []
    return [*_SSH, f"-p{lease.service.get('port', 22)}", f"{user}@{host}"]


def required_tags(
    choice: FarmChoice, board: Board | None = None, selection: BoardSelection | None = None
) -> dict[str, str]:
    """Labgrid tags that a place must have, for a board and the option ``--tags``."""
    tags = {}
    if board and selection:
        kind = "" if selection.kind == "auto" else selection.kind
        optional = {"kind": kind, "serial": selection.serial}
        tags = {"health": "ok", "board": board.full_name}
        tags |= {name: value for name, value in optional.items() if value}
    for tag in filter(None, choice.tags.split(",")):
        name, equals, value = tag.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"--tags {tag!r} is not a tag", "give NAME=VALUE, separated by commas")
        tags[name.strip()] = value.strip()
    return tags


_POLL = 0.2


class ServedBoards:
    """Leased and served boards, as a context manager.

    Args:
        command_for: returns the command that serves a board, given the server's port, the tracker's address at
            the board's host, and the local port that is forwarded to the server's.
    """

    def __init__(
        self,
        choice: FarmChoice,
        command_for: Callable[[int, str, int], RemoteCommand],
        tracker: int,
        count: int,
        say: Callable[[str], None],
    ) -> None:
        self._choice, self._command_for, self._tracker, self._say = choice, command_for, tracker, say
        self._location = InFarm(say, choice)
        self._logs = log_folder(work() / "logs" / f"farm-{secrets.token_hex(4)}")
        self._stopping = threading.Event()
        self._leases: list[Lease] = []
        self._errors: list[UtvmError] = []
        self._threads = [threading.Thread(target=self._serve, args=(number,)) for number in range(count)]

    def __enter__(self) -> "ServedBoards":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for lease in [*self._leases]:
            lease.mark_lost("the run is over")
        for thread in self._threads:
            thread.join()

    def wait(self, count_served: Callable[[], int]) -> None:
        """Wait until all boards leased so far are served, and at least one."""
        while not (count := count_served()) or count < len([*self._leases]):
            if not any(thread.is_alive() for thread in self._threads):
                raise self._errors[0]
            time.sleep(_POLL)

    def _serve(self, number: int) -> None:
        """Serve a board until the block ends; replace a board whose server exits, once."""
        try:
            command = self._command_for(0, "", 0)
            tags = required_tags(self._choice, command.board, command.selection)
            wait, log = command.selection.wait or None, self._logs / f"labgrid-{number}.log"
            address = client.coordinator_address()
            with client.LeaseHolder(address, tags, wait, log, self._say) as holder:
                while lease := self._wait_for_lease(holder):
                    reason = self._serve_once(number, lease)
                    if self._stopping.is_set():
                        return
                    lease.outcome = "infrastructure"
                    if not holder.retry(reason):
                        raise ProvisionError(
                            f"{lease.place}: {reason}", "./inv farm.list shows the state of all boards"
                        )
                    self._say(f"{lease.place}: {holder.earlier[-1]['why']}; another board is requested")
        except UtvmError as error:
            self._errors.append(error)
            self._say(error.message)

    def _wait_for_lease(self, holder: client.LeaseHolder) -> Lease | None:
        while (lease := holder.poll()) is None:
            if self._stopping.wait(_POLL):
                return None
        self._say(f"leased {lease.place} at {lease.host}, after {lease.waited:.1f} s in line")
        return lease

    def _serve_once(self, number: int, lease: Lease) -> str:
        self._leases.append(lease)
        if self._stopping.is_set():
            lease.mark_lost("the run is over")
        try:
            return self._serve_at_host(number, lease)
        except ProvisionError as error:
            return error.message
        finally:
            self._leases.remove(lease)

    def _serve_at_host(self, number: int, lease: Lease) -> str:
        # A port that is free here is usually free there, too.
        port, login, path = free_port(), login_to(lease), self._logs / f"serve-{number}.log"
        with open(path, "ab", opener=open_regular) as log:
            if not login:
                command = self._command_for(port, f"127.0.0.1:{self._tracker}", 0)
                code = self._location.run_at_host(command, lease, (), log)
            else:
                # sshd creates sockets that only their owner can connect to (StreamLocalBindMask 0177).
                remote_socket = f"/tmp/utvm-{secrets.token_hex(8)}"
                options = [f"-R{remote_socket}:127.0.0.1:{self._tracker}", "-oExitOnForwardFailure=yes"]
                with hosted.SshTunnel(login, port) as tunnel:
                    command = self._command_for(port, f"unix:{remote_socket}", tunnel.port)
                    code = self._location.run_at_host(command, lease, options, log)
                run_bound([*login, f"rm -f {remote_socket}"])
        if code == ExitCode.USAGE:
            raise ConfigError(
                f"{lease.place} cannot be served: {last_lines(path)}", "run board.serve at its host to see the error"
            )
        return lease.lost or f"its server exited with code {code}; its log: {path}"
