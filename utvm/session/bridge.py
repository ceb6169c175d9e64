# SPDX-License-Identifier: Apache-2.0
"""A TVM RPC server in front of one board: the stock client on one side, a :class:`Link` on the other.

The board serves one client at a time. What goes wrong on the way to it reaches the client as an exception; the
board is reset then, the client's handles are gone, and the next client finds it ready.

The thread in :meth:`Bridge.serve` does all that concerns the board, so that the processes which it starts have an
owner that stays. Clients are read in threads of their own; what they want done is handed to that one.
"""

import contextlib
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Protocol

from utvm.base.process.peer import listen
from utvm.errors import ConfigError, TransportError, UtvmError
from utvm.session.minrpc import (
    ClientConnection,
    ClientGone,
    Code,
    PacketTooLong,
    SessionExpired,
    code_of,
)
from utvm.session.tracker import Registration

_FIRST_ANSWER = 30.0  # Seconds that the board may take for a session's first packet, which only begins it.


class BoardLink(Protocol):
    """The interface of a :class:`utvm.session.link.Link` with a started session."""

    def request(self, packet: bytes, timeout: float) -> bytes:
        """Have the board execute a MinRPC packet; raise UtvmError when the session is over."""

    def terminate(self) -> None:
        """End the session."""

    def abort(self) -> None:
        """End a request that is under way in another thread."""


class BoardWorker:
    """Does one piece of work on the board at a time, all of it in the thread that calls :meth:`work`.

    Args:
        connect: returns a link with a new session; called for each client.
        restart: resets the board and returns a link with a new session; called after trouble.
        call_timeout: seconds that a request may take.
        log: receives a line about each trouble.
        check: raises UtvmError if something that the board needs has died; no reset helps, and the work ends.

    Attributes:
        stopping: set once :meth:`stop` has been called.
    """

    def __init__(
        self,
        connect: Callable[[], BoardLink],
        restart: Callable[[], BoardLink],
        call_timeout: float,
        log: Callable[[str], None],
        check: Callable[[], None],
    ) -> None:
        self.stopping = threading.Event()
        self._connect = connect
        self._restart = restart
        self._call_timeout = call_timeout
        self._log = log
        self._check = check
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._asked: list[Future[bytes]] = []  # In the end it stays as it is, for work() to go through.
        self._lock = threading.Lock()
        self._link: BoardLink | None = None
        self._in_use = False  # The link's session belongs to a client; if not, it waits for one.
        self._broken = False  # Only a reset helps.

    def work(self) -> None:
        """Do what the other methods ask for, until :meth:`stop`."""
        try:
            while (job := self._jobs.get()) is not None and not self.stopping.is_set():
                job()
        finally:
            self.stop()
            # Nobody may wait for ever, wherever an interrupt has hit.
            for future in self._asked:
                if not future.done():
                    future.set_exception(TransportError("the bridge has ended"))
            self._drop_link()

    def stop(self) -> None:
        """Make :meth:`work` end. A request under way is given up; a reset under way is waited for."""
        with self._lock:
            self.stopping.set()
            if self._link:
                self._link.abort()
            self._jobs.put(None)

    def ask(self, packet: bytes, deadline: float | None, *, first: bool) -> bytes:
        """Have the board answer a packet. After an error its session is over.

        Args:
            deadline: on the monotonic clock.
            first: the packet begins a session.
        """
        future: Future[bytes] = Future()
        answer = self._first_answer if first else self._answer
        self._put(partial(self._fulfil, future, partial(answer, packet, deadline)), future)
        try:
            return future.result()
        finally:
            with self._lock:
                if not self.stopping.is_set():
                    self._asked.remove(future)

    def end_session(self) -> None:
        """Have the board made ready for the next client. Does not wait for it."""
        with contextlib.suppress(TransportError):
            self._put(self._tidy)

    def _put(self, job: Callable[[], None], future: "Future[bytes] | None" = None) -> None:
        with self._lock:
            if self.stopping.is_set():
                raise TransportError("the bridge has ended")
            if future:
                self._asked.append(future)
            self._jobs.put(job)

    def _fulfil(self, future: "Future[bytes]", answer: Callable[[], bytes]) -> None:
        try:
            future.set_result(answer())
        except Exception as error:
            self._log(f"the board failed: {error}")
            self._broken = True
            self._drop_link()
            future.set_exception(error)

    def _answer(self, packet: bytes, deadline: float | None) -> bytes:
        if self._link is None:
            raise TransportError("there is no session with the board")
        return self._link.request(packet, self._time_left(deadline, self._call_timeout))

    def _first_answer(self, packet: bytes, deadline: float | None) -> bytes:
        # The client has nothing on the board yet: trouble here costs it no more than a reset's time.
        timeout = min(self._call_timeout, _FIRST_ANSWER)
        if not self._broken:
            try:
                return self._new_session().request(packet, self._time_left(deadline, timeout))
            except UtvmError as error:
                self._log(f"the board does not begin a session, resetting it: {error}")
        self._reset()
        return self._new_session().request(packet, self._time_left(deadline, timeout))

    def _new_session(self) -> BoardLink:
        # The session that a reset began has waited for its client.
        if self._link is None or self._in_use:
            self._keep(self._connect())
        self._in_use = True
        assert self._link
        return self._link

    def _reset(self) -> None:
        self._drop_link()
        self._broken = True
        self._check()
        self._keep(self._restart())
        self._broken = False

    def _tidy(self) -> None:
        if self.stopping.is_set():
            return
        if not self._broken:
            if self._in_use:
                self._drop_link()
            return
        try:
            self._reset()
        except Exception as error:
            self._check()
            self._log(f"the board cannot be reset, trying again for the next client: {error}")

    def _keep(self, link: BoardLink) -> None:
        with self._lock:
            self._link, self._in_use = link, False
            if self.stopping.is_set():
                link.abort()

    def _drop_link(self) -> None:
        with self._lock:
            link, self._link = self._link, None
        if link:
            with contextlib.suppress(UtvmError):
                link.terminate()

    def _time_left(self, deadline: float | None, timeout: float) -> float:
        return timeout if deadline is None else max(0.0, min(timeout, deadline - time.monotonic()))


__all__ = ["BoardLink", "Bridge"]

_LOG = logging.getLogger("utvm.session.serve")

_HANDSHAKE_TIMEOUT = 5.0  # Seconds.
_FIRST_PACKET = 10.0  # Seconds from a client's handshake to its first packet: it holds the board meanwhile.
_GRACE = 3.0  # Seconds that a client waits for the one before it to be gone, until it is told that it is not.
_LEAVING = 20.0  # Seconds in which a thread is to end that was told to.
_MOST_CONNECTIONS = 64


class Bridge:
    """Serves a board to TVM RPC clients.

    The port is bound at once; clients are accepted while :meth:`serve` runs.

    Run it in another process than its clients: TVM's client holds Python's lock while it frees what it has on the
    board, and waits for the bridge's answer meanwhile.

    Args:
        connect: returns a link with a new session; called for each client.
        restart: resets the board and returns a link with a new session; called after trouble.
        key: what a client must give to ``rpc.connect``, or with a tracker, what it asks the tracker for; empty,
            without a tracker: any client is welcome.
        packet_limit: bytes of the longest packet that the board takes, without its length field.
        host: name or address of the interface to listen on.
        port: TCP port, 0 for any free one.
        anyone: whether clients of other users, and other computers, are accepted too.
        tracker: host and TCP port of a TVM RPC tracker to register with, or the path of its socket.
        announced: the port that it is told, where another one leads here; 0 for the port itself.
        call_timeout: seconds that a request to the board may take.
        tracker_period: seconds between two looks at the tracker.
        stall_timeout: seconds after which a client that stops in the middle of a packet is given up.
        log: receives a line about clients that come and go and about trouble; called from several threads.
        check: raises UtvmError if something that the board needs has died: that ends :meth:`serve`.

    Attributes:
        port: the TCP port.
    """

    def __init__(
        self,
        connect: Callable[[], BoardLink],
        restart: Callable[[], BoardLink],
        *,
        key: str,
        packet_limit: int,
        host: str = "127.0.0.1",
        port: int = 0,
        anyone: bool = False,
        tracker: tuple[str, int] | Path | None = None,
        announced: int = 0,
        call_timeout: float = 60.0,
        tracker_period: float = 2.0,
        stall_timeout: float = 30.0,
        log: Callable[[str], None] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        if len(key.split()) > 1 or key.strip() != key:
            raise ConfigError(f"the RPC key {key!r} holds white space", "clients could not name it")
        self.key = key
        self._say = log
        self._board = BoardWorker(connect, restart, call_timeout, self._log, check)
        self._packet_limit = packet_limit
        self._stall_timeout = stall_timeout
        try:
            self._listener = listen(port, host=host, anyone=anyone)
        except OSError as error:
            raise TransportError(
                f"cannot listen on {host}:{port}: {error}", "is another server running there?"
            ) from error
        self.port: int = self._listener.getsockname()[1]
        self._tracker: Registration | None = None
        if tracker:
            self._tracker = Registration(
                tracker, key, announced or self.port, period=tracker_period, log=self._log
            )
        self._tracker_error: TransportError | None = None
        self._lock = threading.Condition()
        self._owner: ClientConnection | None = None
        self._clients: dict[threading.Thread, ClientConnection] = {}

    def serve(self) -> None:
        """Serve clients until :meth:`stop`, or until an exception such as KeyboardInterrupt ends it. Once only."""
        helpers = [threading.Thread(target=self._accept_clients, name="bridge clients", daemon=True)]
        if self._tracker:
            helpers.append(threading.Thread(target=self._register, name="bridge tracker", daemon=True))
        try:
            for thread in helpers:
                thread.start()
            self._board.work()
        finally:
            self.stop()
            self._join(helpers)  # From here on there are no new clients.
            with self._lock:
                clients = dict(self._clients)
            for connection in clients.values():
                connection.hang_up()
            self._join(clients)
        if self._tracker_error:
            raise self._tracker_error

    def stop(self) -> None:
        """End :meth:`serve`, from any thread. Safe to call again."""
        self._board.stop()
        # Closing alone would not wake a thread that waits in accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._tracker:
            self._tracker.stop()

    def _log(self, line: str) -> None:
        _LOG.info("%s", line)
        if self._say:
            self._say(line)

    def _join(self, threads: Iterable[threading.Thread]) -> None:
        for thread in threads:
            with contextlib.suppress(RuntimeError):  # An interrupt came before it was started.
                thread.join(_LEAVING)

    def _register(self) -> None:
        assert self._tracker
        try:
            self._tracker.run()
        except TransportError as error:
            self._tracker_error = error
            self.stop()

    def _accept_clients(self) -> None:
        while not self._board.stopping.is_set():
            try:
                connected, address = self._listener.accept()
            except OSError as error:
                # Out of file descriptors, say; while stopping, the wait ends at once.
                if not self._board.stopping.wait(0.1):
                    self._log(f"cannot accept a client: {error}")
                continue
            connection = ClientConnection(
                connected,
                f"{address[0]}:{address[1]}",
                packet_limit=self._packet_limit,
                stall_timeout=self._stall_timeout,
            )
            thread = threading.Thread(
                target=self._meet, args=(connection,), name=f"bridge {connection.name}", daemon=True
            )
            with self._lock:
                crowded = len(self._clients) >= _MOST_CONNECTIONS
                if not crowded:
                    self._clients[thread] = connection
            if crowded:
                self._log(f"{connection.name}: turned away, {_MOST_CONNECTIONS} clients are connected")
                connection.close()
            else:
                thread.start()

    def _meet(self, connection: ClientConnection) -> None:
        try:
            key, timeout = connection.read_key(_HANDSHAKE_TIMEOUT)
            if not (self._tracker.take(key) if self._tracker else self.key in ("", key)):
                self._log(f"{connection.name}: turned away, its key is {key!r}")
                connection.refuse()
                connection.say_farewell()
                return
            with self._lock:
                # Who has just left may not have been noticed yet.
                self._lock.wait_for(lambda: self._owner is None, _GRACE)
                owner = self._owner
                if owner is None:
                    self._owner = connection
            if owner is None:
                self._log(f"{connection.name}: connected")
                try:
                    connection.accept(self.key)
                    self._converse(connection, timeout)
                finally:
                    self._release(connection)
                    self._log(f"{connection.name}: ended")
            else:
                connection.accept(self.key)
                self._put_off(connection, owner)
        except ClientGone as error:
            self._log(f"{connection.name}: {error}")
        except Exception as error:  # A mistake of ours must not cost the next client the board.
            self._log(f"{connection.name}: the bridge failed: {type(error).__name__}: {error}")
        finally:
            connection.close()
            with self._lock:
                del self._clients[threading.current_thread()]

    def _put_off(self, connection: ClientConnection, owner: ClientConnection) -> None:
        # The stock client shows an exception only in answer to a packet.
        with contextlib.suppress(SessionExpired, PacketTooLong):
            connection.receive(time.monotonic() + _FIRST_PACKET)
        since = time.strftime("%H:%M:%S", time.localtime(owner.since))
        connection.send_exception(
            f"busy: {self.key or 'the board'} serves {owner.name} since {since} "
            f"({time.time() - owner.since:.0f} s); connect again when that client has ended"
        )
        connection.say_farewell()

    def _converse(self, connection: ClientConnection, timeout: float | None) -> None:
        deadline = time.monotonic() + timeout if timeout else None
        until = time.monotonic() + _FIRST_PACKET
        if deadline:
            until = min(deadline, until)
        begun = False
        lost = ""
        while True:
            try:
                packet = connection.receive(deadline if begun else until)
            except PacketTooLong as error:
                connection.send_exception(
                    f"a packet of {error.size} bytes is too long: the board takes {self._packet_limit} bytes"
                )
                continue
            except SessionExpired as error:
                if begun or until == deadline:
                    self._expire(connection, timeout)
                    return
                raise ClientGone("it began no session") from error
            if code_of(packet) == Code.SHUTDOWN:
                return
            if lost:
                connection.send_exception(lost)
                continue
            try:
                answer = self._board.ask(packet, deadline, first=not begun)
            except Exception as error:
                # Who asked is told first; the board can take its time.
                try:
                    if deadline and time.monotonic() >= deadline:
                        self._expire(connection, timeout)
                        return
                    connection.send_exception(str(error) or type(error).__name__)
                finally:
                    self._release(connection)
                lost = (
                    "the board was reset, and what this client had on it is gone; connect again. "
                    f"The reason was: {error}"
                )
                continue
            finally:
                begun = True
            connection.send(answer)

    def _expire(self, connection: ClientConnection, timeout: float | None) -> None:
        self._log(f"{connection.name}: its session timeout of {timeout:g} s is over")
        connection.send_exception(
            f"RPCSessionTimeoutError: the session's {timeout:g} s are over; "
            "ask for a longer session_timeout when connecting"
        )
        connection.say_farewell()

    def _release(self, connection: ClientConnection) -> None:
        with self._lock:
            if self._owner is not connection:
                return
            # What the next client asks of the board comes after this.
            self._board.end_session()
            self._owner = None
            self._lock.notify_all()
        if self._tracker:
            self._tracker.offer()
