# SPDX-License-Identifier: Apache-2.0
"""Several boards of a farm, served to one tracker at once: each with its own lease, at its own host."""

import secrets
import threading
import time
from collections.abc import Callable
from types import TracebackType

from utvm.base.log.setup import log_folder
from utvm.base.process.run import free_port, last_lines
from utvm.base.storage.files import open_regular
from utvm.environment.remote import RemoteCommand, run_owned
from utvm.errors import ConfigError, ExitCode, ProvisionError, UtvmError
from utvm.farm.client import coordinator_address
from utvm.farm.lease import LeaseHolder
from utvm.farm.location import InFarm, login_to, required_tags
from utvm.farm.tunnel import SshTunnel
from utvm.paths import work
from utvm.provenance.lease import Lease
from utvm.selection import FarmChoice

_POLL = 0.2


class ServedBoards:
    """Boards that are leased and served, for the length of a ``with`` block.

    Args:
        choice: the farm, and the tags of the boards.
        command_for: returns the command that serves one, given its own port and the tracker's address at its host,
            and the port here that leads to its own.
        tracker: the tracker's port here.
        count: number of boards.
        say: receives progress messages.
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

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for lease in [*self._leases]:
            lease.mark_lost("the run is over")
        for thread in self._threads:
            thread.join()

    def wait(self, count_served: Callable[[], int]) -> None:
        """Wait until all boards that are leased by then are served, and at least one.

        Args:
            count_served: returns the number of boards at the tracker.
        """
        while not (count := count_served()) or count < len([*self._leases]):
            if not any(thread.is_alive() for thread in self._threads):
                raise self._errors[0]
            time.sleep(_POLL)

    def _serve(self, number: int) -> None:
        """Serve a board until the block ends; a board whose server exits is replaced by another one, once."""
        try:
            command = self._command_for(0, "", 0)
            tags = required_tags(self._choice, command.board, command.selection)
            wait, log = command.selection.wait or None, self._logs / f"labgrid-{number}.log"
            address = coordinator_address()
            with LeaseHolder(address, tags, wait, log, self._say) as holder:
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

    def _wait_for_lease(self, holder: LeaseHolder) -> Lease | None:
        while (lease := holder.poll()) is None:
            if self._stopping.wait(_POLL):
                return None
        self._say(f"leased {lease.place} at {lease.host}, after {lease.waited:.1f} s in line")
        return lease

    def _serve_once(self, number: int, lease: Lease) -> str:
        """Serve a leased board; return why its server ended."""
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
        # A port that is free here is mostly free there, too.
        port, login, path = free_port(), login_to(lease), self._logs / f"serve-{number}.log"
        with open(path, "ab", opener=open_regular) as log:
            if not login:
                command = self._command_for(port, f"127.0.0.1:{self._tracker}", 0)
                code = self._location.run_at_host(command, lease, (), log)
            else:
                # sshd makes sockets that only their owner can connect to (StreamLocalBindMask 0177).
                remote_socket = f"/tmp/utvm-{secrets.token_hex(8)}"
                options = [f"-R{remote_socket}:127.0.0.1:{self._tracker}", "-oExitOnForwardFailure=yes"]
                with SshTunnel(login, port) as tunnel:
                    command = self._command_for(port, f"unix:{remote_socket}", tunnel.port)
                    code = self._location.run_at_host(command, lease, options, log)
                run_owned([*login, f"rm -f {remote_socket}"])
        if code == ExitCode.USAGE:
            raise ConfigError(
                f"{lease.place} cannot be served: {last_lines(path)}",
                "run board.serve at its host to see the error",
            )
        return lease.lost or f"its server exited with code {code}; its log: {path}"
