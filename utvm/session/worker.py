# SPDX-License-Identifier: Apache-2.0
"""The thread of work on a board that serves many clients, one after the other."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from utvm.errors import TransportError, UtvmError

_FIRST_ANSWER = 30.0  # Seconds that the board may take for a session's first packet, which only begins it.


class BoardLink(Protocol):
    """What a bridge needs of a :class:`utvm.session.link.Link` whose session has been started."""

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
