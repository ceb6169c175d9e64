# SPDX-License-Identifier: Apache-2.0
"""A TVM RPC server in front of one board: the stock client on one side, a :class:`Link` on the other.

The board serves one client at a time. A board error reaches the client as an exception; then the board is reset,
the client's handles become invalid, and the next client can connect. All board access runs in the thread of
:meth:`Bridge.serve`, so that the processes started there have a lasting owner; clients are read in other threads.
"""

import contextlib
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from utvm.base.process.peer import listen
from utvm.errors import ConfigError, TransportError, UtvmError
from utvm.session.minrpc import ClientConnection, ClientGone, Code, PacketTooLong, SessionExpired, code_of
from utvm.session.tracker import Registration

_FIRST_ANSWER = 30.0  # Timeout in seconds of a session's first packet, which only initialises it.


class BoardLink(Protocol):
    """Interface of a :class:`utvm.session.link.Link` with a started session."""

    def request(self, packet: bytes, timeout: float) -> bytes:
        """Send a MinRPC packet and return the reply; raise UtvmError when the session is over."""

    def terminate(self) -> None:
        """End the session."""

    def abort(self) -> None:
        """Cancel a request running in another thread."""


@dataclass(eq=False)
class BoardWorker:
    """Runs board jobs one at a time, all in the thread that calls :meth:`work`.

    Attributes:
        connect: returns a link with a new session; called for each client.
        restart: resets the board and returns a link with a new session; called after an error.
        call_timeout: seconds per request.
        check: raises UtvmError if a process that the board needs has died: no reset helps then, and the work ends.
    """

    connect: Callable[[], BoardLink]
    restart: Callable[[], BoardLink]
    call_timeout: float
    log: Callable[[str], None]
    check: Callable[[], None]

    def __post_init__(self) -> None:
        self.stopping = threading.Event()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._requests: list[Future[bytes]] = []  # Unchanged once stopping is set: work() iterates over it.
        self._lock = threading.Lock()
        self._link: BoardLink | None = None
        self._in_use = False  # A client owns the link's session.
        self._broken = False  # The board needs a reset.

    def work(self) -> None:
        """Run queued jobs until :meth:`stop`."""
        try:
            while (job := self._jobs.get()) is not None and not self.stopping.is_set():
                job()
        finally:
            self.stop()
            # Wherever an interrupt came, no caller may wait for ever.
            for future in self._requests:
                if not future.done():
                    future.set_exception(TransportError("the bridge has ended"))
            self._drop_link()

    def stop(self) -> None:
        """End :meth:`work`: cancel a request in progress, wait for a reset in progress."""
        with self._lock:
            self.stopping.set()
            if self._link:
                self._link.abort()
            self._jobs.put(None)

    def ask(self, packet: bytes, deadline: float | None, *, first: bool) -> bytes:
        """Forward a packet, the session's ``first`` or a later one, and return the reply. An error ends the
        session.

        ``deadline`` is on the monotonic clock.
        """
        future: Future[bytes] = Future()
        answer = self._first_answer if first else self._answer
        self._put(partial(self._fulfil, future, partial(answer, packet, deadline)), future)
        try:
            return future.result()
        finally:
            with self._lock:
                if not self.stopping.is_set():
                    self._requests.remove(future)

    def end_session(self) -> None:
        """Queue the preparation of the board for the next client, without waiting."""
        with contextlib.suppress(TransportError):
            self._put(self._tidy)

    def _put(self, job: Callable[[], None], future: "Future[bytes] | None" = None) -> None:
        with self._lock:
            if self.stopping.is_set():
                raise TransportError("the bridge has ended")
            if future:
                self._requests.append(future)
            self._jobs.put(job)

    def _fulfil(self, future: "Future[bytes]", answer: Callable[[], bytes]) -> None:
        try:
            future.set_result(answer())
        except Exception as error:
            self.log(f"the board failed: {error}")
            self._broken = True
            self._drop_link()
            future.set_exception(error)

    def _answer(self, packet: bytes, deadline: float | None) -> bytes:
        if self._link is None:
            raise TransportError("there is no session with the board")
        return self._link.request(packet, self._time_left(deadline, self.call_timeout))

    def _first_answer(self, packet: bytes, deadline: float | None) -> bytes:
        # The client has no state on the board yet, so an error costs it only the time of a reset.
        timeout = min(self.call_timeout, _FIRST_ANSWER)
        if not self._broken:
            try:
                return self._new_session().request(packet, self._time_left(deadline, timeout))
            except UtvmError as error:
                self.log(f"the board does not begin a session, resetting it: {error}")
        self._reset()
        return self._new_session().request(packet, self._time_left(deadline, timeout))

    def _new_session(self) -> BoardLink:
        # The session started by a reset is still unused.
        if self._link is None or self._in_use:
            self._set_link(self.connect())
        self._in_use = True
        assert self._link
        return self._link

    def _reset(self) -> None:
        self._drop_link()
        self._broken = True
        self.check()
        self._set_link(self.restart())
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
            self.check()
            self.log(f"the board cannot be reset, trying again for the next client: {error}")

    def _set_link(self, link: BoardLink) -> None:
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
_FIRST_PACKET = 10.0  # Seconds from the handshake to the first packet: the client holds the board meanwhile.
_GRACE = 3.0  # Seconds to wait for the previous client to disconnect before reporting "busy".
_LEAVING = 20.0  # Seconds to wait for a stopped thread to end.
_MAX_CONNECTIONS = 64


class Bridge:
    """Serves a board to TVM RPC clients.

    The port is bound at once; clients are accepted while :meth:`serve` runs. Run it in another process than its
    clients: TVM's client holds the GIL while it frees its objects on the board and waits for the bridge's reply.

    Args:
        connect, restart: see :class:`BoardWorker`.
        key: key for ``rpc.connect`` or, with a tracker, for the tracker; empty, without a tracker, accepts any.
        packet_limit: longest packet that the board accepts, in bytes without the length field.
        host: name or address of the interface to listen on.
        port: TCP port, 0 for any free one.
        anyone: True to accept clients of other users and other computers.
        tracker: host and TCP port of a TVM RPC tracker to register with, or the path of its socket.
        announced: port to register if it is forwarded here; 0 for the port itself.
        call_timeout: seconds per board request.
        tracker_period: seconds between two polls of the tracker.
        stall_timeout: seconds after which a client that stops within a packet is disconnected.
        log: called with messages about clients and errors, from several threads.
        check: raises UtvmError if a process that the board needs has died; this ends :meth:`serve`.
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
        with TransportError.on(OSError, f"cannot listen on {host}:{port}:", "is another server running there?"):
            self._listener = listen(port, host=host, anyone=anyone)
        self.port: int = self._listener.getsockname()[1]
        self._tracker: Registration | None = None
        if tracker:
            self._tracker = Registration(tracker, key, announced or self.port, period=tracker_period, log=self._log)
        self._tracker_error: TransportError | None = None
        self._lock = threading.Condition()
        self._owner: ClientConnection | None = None
        self._clients: dict[threading.Thread, ClientConnection] = {}

    def serve(self) -> None:
        """Serve clients until :meth:`stop` or an exception such as KeyboardInterrupt. Call it only once."""
        helpers = [threading.Thread(target=self._accept_clients, name="bridge clients", daemon=True)]
        if self._tracker:
            helpers.append(threading.Thread(target=self._register, name="bridge tracker", daemon=True))
        try:
            for thread in helpers:
                thread.start()
            self._board.work()
        finally:
            self.stop()
            self._join(helpers)  # No new clients after this.
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
        # close() alone does not wake a thread blocked in accept().
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
            with contextlib.suppress(RuntimeError):  # The thread was not started, because of an interrupt.
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
                # For instance, no file descriptors left. When stopping, wait() returns at once.
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
                target=self._handle_client, args=(connection,), name=f"bridge {connection.name}", daemon=True
            )
            with self._lock:
                is_full = len(self._clients) >= _MAX_CONNECTIONS
                if not is_full:
                    self._clients[thread] = connection
            if is_full:
                self._log(f"{connection.name}: turned away, {_MAX_CONNECTIONS} clients are connected")
                connection.close()
            else:
                thread.start()

    def _handle_client(self, connection: ClientConnection) -> None:
        try:
            key, timeout = connection.read_key(_HANDSHAKE_TIMEOUT)
            if not (self._tracker.take(key) if self._tracker else self.key in ("", key)):
                self._log(f"{connection.name}: turned away, its key is {key!r}")
                connection.refuse()
                connection.say_farewell()
                return
            with self._lock:
                # The previous client's disconnect may not be detected yet.
                self._lock.wait_for(lambda: self._owner is None, _GRACE)
                owner = self._owner
                if owner is None:
                    self._owner = connection
            if owner is None:
                self._log(f"{connection.name}: connected")
                try:
                    connection.accept(self.key)
                    self._serve_client(connection, timeout)
                finally:
                    self._release(connection)
                    self._log(f"{connection.name}: ended")
            else:
                connection.accept(self.key)
                self._report_busy(connection, owner)
        except ClientGone as error:
            self._log(f"{connection.name}: {error}")
        except Exception as error:  # A bug in the bridge must not cost the next client the board.
            self._log(f"{connection.name}: the bridge failed: {type(error).__name__}: {error}")
        finally:
            connection.close()
            with self._lock:
                del self._clients[threading.current_thread()]

    def _report_busy(self, connection: ClientConnection, owner: ClientConnection) -> None:
        # The stock client reports an exception only as the reply to a packet.
        with contextlib.suppress(SessionExpired, PacketTooLong):
            connection.receive(time.monotonic() + _FIRST_PACKET)
        since = time.strftime("%H:%M:%S", time.localtime(owner.since))
        connection.send_exception(
            f"busy: {self.key or 'the board'} serves {owner.name} since {since} "
            f"({time.time() - owner.since:.0f} s); connect again when that client has ended"
        )
        connection.say_farewell()

    def _serve_client(self, connection: ClientConnection, timeout: float | None) -> None:
        deadline = time.monotonic() + timeout if timeout else None
        until = time.monotonic() + _FIRST_PACKET
        if deadline:
            until = min(deadline, until)
        has_begun = False
        reason = ""
        while True:
            try:
                packet = connection.receive(deadline if has_begun else until)
            except PacketTooLong as error:
                connection.send_exception(
                    f"a packet of {error.size} bytes is too long: the board takes {self._packet_limit} bytes"
                )
                continue
            except SessionExpired as error:
                if has_begun or until == deadline:
                    self._expire(connection, timeout)
                    return
                raise ClientGone("it began no session") from error
            if code_of(packet) == Code.SHUTDOWN:
                return
            if reason:
                connection.send_exception(reason)
                continue
            try:
                answer = self._board.ask(packet, deadline, first=not has_begun)
            except Exception as error:
                # Reply to the client before the slow reset of the board.
                try:
                    if deadline and time.monotonic() >= deadline:
                        self._expire(connection, timeout)
                        return
                    connection.send_exception(str(error) or type(error).__name__)
                finally:
                    self._release(connection)
                reason = (
                    "the board was reset, and what this client had on it is gone; connect again. "
                    f"The reason was: {error}"
                )
                continue
            finally:
                has_begun = True
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
            # Jobs of the next client are queued after this one.
            self._board.end_session()
            self._owner = None
            self._lock.notify_all()
        if self._tracker:
            self._tracker.offer()
