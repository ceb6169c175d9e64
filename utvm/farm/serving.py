# SPDX-License-Identifier: Apache-2.0
"""Several boards of a farm that are served at a tracker of ours at once: each with its lease, at its own host."""

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from utvm.base.log.folders import log_folder
from utvm.base.process.run import free_port, last_lines
from utvm.base.storage.safe_files import open_regular
from utvm.environment.remote import RemoteCommand, run_owned
from utvm.errors import ConfigError, ExitCode, ProvisionError, UtvmError
from utvm.farm.client import coordinator_address
from utvm.farm.lease import Lease, LeaseHolder
from utvm.farm.location import InFarm, login_to, required_tags
from utvm.farm.tunnel import SshTunnel
from utvm.paths import work
from utvm.selection import FarmChoice

_LOOK = 0.2


class ServedBoards:
    """Boards that are waited for and then served, for the length of a ``with`` block.

    Args:
        choice: which farm, and which of its boards.
        command_for: returns the command that serves one, given its own port and the tracker's address at its host,
            and the port here that leads to its own.
        tracker: the port that the tracker has here.
        count: how many boards.
        say: is told what becomes of them.
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
        self._place = InFarm(say, choice)
        self._logs = log_folder(work() / "logs" / f"farm-{secrets.token_hex(4)}")
        self._over = threading.Event()
        self._leases: list[Lease] = []
        self._troubles: list[UtvmError] = []
        self._threads = [threading.Thread(target=self._keep, args=(number,)) for number in range(count)]

    def __enter__(self) -> "ServedBoards":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for lease in [*self._leases]:
            lease.mark_lost("it is over")
        for thread in self._threads:
            thread.join()

    def wait(self, served: Callable[[], int]) -> None:
        """Wait until a board is served, and all others that are leased by then.

        Args:
            served: how many boards the tracker has.
        """
        while not (count := served()) or count < len([*self._leases]):
            if not any(thread.is_alive() for thread in self._threads):
                raise self._troubles[0]
            time.sleep(_LOOK)

    def _keep(self, number: int) -> None:
        """Have a board served until it is over; one whose server ends is followed by another, once."""
        try:
            earlier: Sequence[Mapping[str, str]] = ()
            while (earlier := self._served(number, earlier)) and not self._over.is_set():
                self._say(f"{earlier[-1]['place']}: {earlier[-1]['why']}; another board is asked for")
        except UtvmError as error:
            self._troubles.append(error)
            self._say(error.message)

    def _served(self, number: int, earlier: Sequence[Mapping[str, str]]) -> Sequence[Mapping[str, str]]:
        """Serve a board; return why another one is to be tried, which is nothing where none is."""
        wanted = self._command_for(0, "", 0).request
        wish, log = required_tags(wanted, self._choice), self._logs / f"labgrid-{number}.log"
        but = [each["place"] for each in earlier]
        with LeaseHolder(
            coordinator_address(self._choice.farm), wish, wanted.wait or None, log, self._say, but
        ) as leasing:
            while (lease := leasing.poll()) is None:
                if self._over.wait(_LOOK):
                    return ()
            lease.earlier = earlier
            self._say(f"leased {lease.place} at {lease.host}, after {lease.waited:.1f} s in line")
            self._leases.append(lease)
            if self._over.is_set():
                lease.mark_lost("it is over")
            try:
                why = self._at_its_host(number, lease)
            except ProvisionError as error:
                why = error.message
            finally:
                self._leases.remove(lease)
            if self._over.is_set():
                return ()
            lease.outcome = "infrastructure"
        if earlier or not lease.others:
            raise ProvisionError(f"{lease.place}: {why}", "./inv farm.list shows how the boards are")
        return lease.failed(why)

    def _at_its_host(self, number: int, lease: Lease) -> str:
        """Serve a board until its server ends, and return what is to be said of that."""
        # A port that is free here is mostly free there, too.
        port, login, path = free_port(), login_to(lease), self._logs / f"serve-{number}.log"
        with open(path, "ab", opener=open_regular) as log:
            if not login:
                code = self._place.at_its_host(
                    self._command_for(port, f"127.0.0.1:{self._tracker}", 0), lease, (), log
                )
            else:
                # sshd makes sockets that only their owner can connect to (StreamLocalBindMask 0177).
                there = f"/tmp/utvm-{secrets.token_hex(8)}"
                ways = [f"-R{there}:127.0.0.1:{self._tracker}", "-oExitOnForwardFailure=yes"]
                with SshTunnel(login, port) as forward:
                    command = self._command_for(port, f"unix:{there}", forward.port)
                    code = self._place.at_its_host(command, lease, ways, log)
                run_owned([*login, f"rm -f {there}"])
        if code == ExitCode.USAGE:
            raise ConfigError(
                f"{lease.place} cannot be served: {last_lines(path)}", "board.serve says so at its host"
            )
        return lease.lost or f"its server has ended with exit code {code}; its log: {path}"
