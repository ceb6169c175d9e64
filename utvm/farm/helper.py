# SPDX-License-Identifier: Apache-2.0
"""A client of labgrid's coordinator that speaks JSON lines: run by path, in labgrid's Python environment.

Each line of the standard input is a request, ``{"do": NAME, ...}``: a method of :class:`LabgridClient` and its
arguments. The reply is one line; a queued lease reports its position before that. End of input ends the lease.
labgrid (26.0.1) never frees the place of a lost holder, so a lease has a deadline in the place's tags: this
process extends it, ``reap`` frees expired places.

labgrid sends each change of a place to every client, subscribed or not. So only the first of a computer's runs
that wait for the same boards is a client. A run that has its board is not a client: it only keeps a stream open.
"""

import asyncio
import contextlib
import fcntl
import json
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
from labgrid.remote.client import ClientSession, ServerError
from labgrid.remote.generated import labgrid_coordinator_pb2 as pb

_HEARTBEAT = 30.0  # Seconds between heartbeats of a lease holder,
_HEARTBEAT_PER_PLACE = 1.0  # or so many per place, if that is more: labgrid forwards each to every client.
_HEARTBEATS = 4  # A lease expires after so many missed heartbeats.
_POLL = 0.2
_POLLS = 20  # Checks between polls of a reservation, which labgrid drops after 60 seconds.
_CHECK = (2.0, 0.1)  # Seconds between checks of who holds a leased place: at least, and per place.
_AWAY = 60.0  # Seconds that the coordinator, or the hosts of all matching boards, may be gone.
_SUSPECT = 60.0  # Seconds for which a host that did not hand over its board counts as away.
_SLOW = 5.0  # Seconds; an exporter answers in milliseconds, and labgrid gives up after ten.
_REPORT = 30.0  # Seconds between lines while waiting.
_CONNECTING = 15.0
_ENDING = 3.0
_UNTIL, _HOLDER, _TROUBLE, _HEALTH = "utvm_until", "utvm_holder", "utvm_trouble", "health"
_BAD_AFTER, _WELL_AFTER = "utvm_bad_after", "utvm_well_after"
_SUSPECT_UNTIL = "utvm_suspect_until"
_PRESENT = "utvm_present"  # "no" while the host is away: labgrid reserves places by their tags alone.


class Unavailable(Exception):
    """The request cannot be met; ``kind`` is usage or infrastructure."""

    def __init__(self, message: str, kind: str = "infrastructure", hint: str = "") -> None:
        super().__init__(message)
        self.kind, self.hint = kind, hint


class HostsAway(Unavailable):
    """The hosts of all matching boards are away; one may be restarting."""


def _public(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags without those that this program sets for itself."""
    return {key: value for key, value in sorted(tags.items()) if not key.startswith("utvm_")}


def say(**content: Any) -> None:
    print(json.dumps(content), flush=True)


class LocalQueue:
    """Runs of this user and computer that want the same boards of a coordinator: a folder with a file for each.

    A file is locked as long as its process lives, and holds the process's last report on the queue.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = folder / f"{time.time_ns()}-{os.getpid()}"
        hidden = folder / f".{self._path.name}"
        self._file = hidden.open("w", encoding="utf-8")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        hidden.rename(self._path)

    def read_ahead(self) -> list[Path]:
        """Return the files of the runs ahead, oldest first, without those at the front whose process has ended."""
        ahead = [path for path in sorted(self._path.parent.glob("[0-9]*")) if path < self._path]
        while ahead and not _is_locked(ahead[0]):
            del ahead[0]
        return ahead

    def report(self, **content: Any) -> None:
        self._file.seek(0)
        self._file.truncate()
        print(json.dumps(content), file=self._file, flush=True)
        say(**content)

    def leave(self) -> None:
        self._path.unlink(missing_ok=True)


def _is_locked(path: Path) -> bool:
    """True if the process of a file lives; otherwise, remove the file."""
    try:
        with path.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            path.unlink()
    except (BlockingIOError, FileNotFoundError) as error:
        return isinstance(error, BlockingIOError)
    return False


class QuietSession(ClientSession):  # type: ignore[misc]
    """A stream that ends with the coordinator. It subscribes to nothing and cannot acquire a place."""

    async def start(self) -> None:
        self.pump_task = self.loop.create_task(self.message_pump())
        if not await self.sync_with_coordinator():
            raise ServerError("Could not connect to coordinator")


class LabgridClient:
    """One session with a coordinator, and at most one lease."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._session: Any = None
        self._place = self._token = ""
        self._holding: asyncio.Task[None] | None = None
        self._healthy: set[str] = set()  # matching places, present or not
        self._queue: LocalQueue | None = None

    async def connect(self, session: type[ClientSession] = ClientSession) -> None:
        await self._disconnect()
        self._session = session(self._address, asyncio.get_running_loop())
        self.holder = f"{self._session.gethostname()}/{self._session.getuser()}"
        try:
            await asyncio.wait_for(self._session.start(), _CONNECTING)
        except (ServerError, grpc.RpcError, asyncio.TimeoutError):
            hint = "./inv farm.up runs one; LG_COORDINATOR=HOST:PORT names another"
            raise Unavailable(f"no coordinator answers at {self._address}", hint=hint) from None

    async def _disconnect(self) -> None:
        if self._session:
            self._session.stopping.set()
            for stop in (self._session.stop, self._session.close):
                # If the coordinator is gone, labgrid waits for an answer.
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(stop(), _ENDING)

    async def close(self) -> None:
        with contextlib.suppress(Exception):
            await self.release()
        await self._disconnect()

    async def _call(self, do: str, /, **fields: Any) -> Any:
        if self._session is None:
            await self.connect()
        return await getattr(self._session.stub, do)(getattr(pb, f"{do}Request")(**fields), timeout=30)

    async def _places(self) -> dict[str, Any]:
        return {place.name: place for place in (await self._call("GetPlaces")).places}

    async def _waiting(self) -> list[Any]:
        reservations = (await self._call("GetReservations")).reservations
        waiting = [entry for entry in reservations if entry.state == 0 and entry.token]
        return sorted(waiting, key=lambda entry: (-entry.prio, entry.created))

    def _resources(self, name: str) -> dict[str, dict[str, Any]]:
        place = self._session.places.get(name)
        return {
            entry.cls: entry.args
            for exporter, groups in self._session.resources.items()
            for group, resources in groups.items()
            for resource, entry in resources.items()
            if entry.data and entry.avail and place and place.hasmatch((exporter, group, entry.cls, resource))
        }

    def _present(self, name: str) -> bool:
        place = self._session.places.get(name)
        suspect = place is not None and float(place.tags.get(_SUSPECT_UNTIL) or 0) > time.time()
        return not suspect and "UtvmBoard" in self._resources(name)

    async def _update_presence(self) -> None:
        """Tag matching places with whether their hosts are present."""
        for name in self._healthy:
            place, present = self._session.places.get(name), "yes" if self._present(name) else "no"
            if place and place.tags.get(_PRESENT) != present:
                await self._call("SetPlaceTags", placename=name, tags={_PRESENT: present})

    async def _sync(self) -> None:
        """Synchronise with the coordinator as a client; not for use while a lease is held."""
        if self._session is None or self._session.stopping.is_set() or isinstance(self._session, QuietSession):
            await self.connect()
        # This would wait forever in a session that is just ending.
        await asyncio.wait_for(self._session.sync_with_coordinator(), _CONNECTING)

    async def list(self) -> None:
        await self._sync()
        places = [
            {
                "place": name,
                "tags": _public(place.tags),
                "comment": place.comment,
                "holder": place.acquired,
                "present": bool(self._resources(name)),
                "judged": bool(place.tags.get(_TROUBLE)),
                "well_after": int(place.tags.get(_WELL_AFTER, "1")),
            }
            for name, place in sorted((await self._places()).items())
        ]
        waiting = [
            {"holder": waiter.owner, "wants": _public(waiter.filters["main"].filter), "since": waiter.created}
            for waiter in await self._waiting()
        ]
        say(places=places, waiting=waiting)

    async def offer(self, place: str, match: str, tags: dict[str, str]) -> None:
        """Create a place for an exporter's resources; an existing one keeps its health."""
        known = (await self._places()).get(place)
        if known is None:
            await self._call("AddPlace", name=place)
            tags = {_HEALTH: "ok", **tags}
        if known is None or match not in {f"{m.exporter}/{m.group}/{m.cls}" for m in known.matches}:
            await self._call("AddPlaceMatch", placename=place, pattern=match)
        await self._call("SetPlaceTags", placename=place, tags=tags)
        say()

    async def mark(self, place: str, health: str, comment: str) -> None:
        if place not in await self._places():
            raise Unavailable(f"the farm has no place {place!r}", "usage")
        await self._call("SetPlaceTags", placename=place, tags={_HEALTH: health, _TROUBLE: ""})
        await self._call("SetPlaceComment", placename=place, comment=comment)
        say()

    async def reap(self, now: float | None = None) -> None:
        now = time.time() if now is None else now
        freed = []
        for name, place in (await self._places()).items():
            tags = dict(place.tags)
            if place.acquired and place.acquired == tags.get(_HOLDER) and float(tags[_UNTIL]) < now:
                await self._call("ReleasePlace", placename=name, fromuser=place.acquired)
                freed.append({"place": name, "holder": place.acquired})
        say(freed=freed)

    async def lease(
        self, filters: dict[str, str], wait: float | None, excluded: Sequence[str] = (), queue: str = ""
    ) -> None:
        """Queue for a board, first locally in a folder, and hold it until :meth:`release` or the end of input."""
        start = time.monotonic()
        try:
            deadline = math.inf if wait is None else start + wait
            if queue:
                await self._wait_behind(LocalQueue(Path(queue)), deadline)
            while True:
                matching = await self._wait_for_hosts(filters, excluded, deadline)
                filter_tags = filters | {_PRESENT: "yes"}
                if excluded:
                    places = await self._places()
                    filter_tags |= {"name": min(matching, key=lambda name: (bool(places[name].acquired), name))}
                await self._reserve(filter_tags, matching, deadline)
                resources = self._resources(self._place)
                if "UtvmBoard" in resources and await self._acquire(len(matching) > 1):
                    break
                await self._cancel()
            # At once: otherwise the place stays idle for up to 15 s after its release.
            await self._cancel()
            self._leave_queue()
            waited = round(time.monotonic() - start, 3)
            self._interval = max(_HEARTBEAT, _HEARTBEAT_PER_PLACE * len(self._session.places))
            await self._heartbeat()
            await self.connect(QuietSession)
        except BaseException:
            await asyncio.shield(self.release())
            raise
        self._holding = asyncio.create_task(self._hold())
        board = {"board": resources["UtvmBoard"], "service": resources.get("NetworkService", {})}
        say(place=self._place, holder=self.holder, waited=waited, others=len(matching - {self._place}), **board)

    async def _wait_behind(self, queue: LocalQueue, deadline: float) -> None:
        """Wait for the runs ahead; report the first one's position, and the holder of each board."""
        self._queue, next_line = queue, 0.0
        while ahead := queue.read_ahead():
            if time.monotonic() > deadline:
                raise Unavailable("no board was free in time")
            if time.monotonic() > next_line:
                # The first run may not have reported yet.
                with contextlib.suppress(OSError, ValueError):
                    first = json.loads(ahead[0].read_text(encoding="utf-8"))
                    say(position=first["position"] + len(ahead), busy=first["busy"])
                    next_line = time.monotonic() + _REPORT
            await asyncio.sleep(_POLL)

    def _leave_queue(self) -> None:
        queue, self._queue = self._queue, None
        if queue:
            queue.leave()

    async def _acquire(self, others: bool) -> bool:
        """Acquire the reserved place; False if its host does not answer and there are others."""
        start = time.monotonic()
        try:
            await self._call("AcquirePlace", placename=self._place)
        except grpc.RpcError:
            if not others:
                raise
            # A computer that was switched off is listed until its connection times out, with all its boards.
            places = self._session.places
            host = places[self._place].tags.get("host") if time.monotonic() - start > _SLOW else None
            until = {_SUSPECT_UNTIL: str(int(time.time() + _SUSPECT))}
            away = [name for name in places if host and places[name].tags.get("host") == host]
            for name in away or [self._place]:
                await self._call("SetPlaceTags", placename=name, tags=until)
            self._place = ""
            return False
        return True

    async def _wait_for_hosts(self, filters: dict[str, str], excluded: Sequence[str], deadline: float) -> set[str]:
        """Return matching places; if all their hosts are away, wait for one."""
        last = min(time.monotonic() + _AWAY, deadline)
        reported, next_line = "", 0.0
        while True:
            try:
                return await self._matching_places(filters, excluded)
            except HostsAway as away:
                if time.monotonic() > last:
                    raise
                self._leave_queue()  # So that all runs wait at the same time, for a minute each.
                if str(away) != reported or time.monotonic() > next_line:
                    reported, next_line = str(away), time.monotonic() + _REPORT
                    say(away=reported)
            await asyncio.sleep(_CHECK[0])

    async def _matching_places(self, filters: dict[str, str], excluded: Sequence[str]) -> set[str]:
        await self._sync()
        required = {key: value for key, value in filters.items() if key != _HEALTH}
        tags = ", ".join(f"{key}={value}" for key, value in required.items())
        places = await self._places()
        tagged = {name: {"name": name, **dict(place.tags)} for name, place in places.items()}
        matching = [place for name, place in places.items() if required.items() <= tagged[name].items()]
        if not matching:
            raise Unavailable(f"no place of the farm has {tags}", "usage")
        matching = [place for place in matching if place.name not in excluded]
        if not matching:
            raise Unavailable(f"the farm has no other board with {tags} than {', '.join(sorted(excluded))}")
        health = filters.get(_HEALTH)
        healthy = [place for place in matching if health in (None, place.tags.get(_HEALTH))]
        if not healthy:
            why = "; ".join(f"{place.name}: {place.comment or 'no reason given'}" for place in matching)
            raise Unavailable(f"all boards with {tags} are in quarantine: {why}")
        self._healthy = {place.name for place in healthy}
        await self._update_presence()
        present = {name for name in self._healthy if self._present(name)}
        if not present:
            raise HostsAway(f"the hosts of all boards with {tags} are away: {', '.join(p.name for p in healthy)}")
        return present

    async def _reserve(self, filters: dict[str, str], matching: set[str], deadline: float) -> None:
        created = await self._call("CreateReservation", prio=0.0, filters={"main": {"filter": filters}})
        self._token = created.reservation.token
        reported, next_line = None, 0.0
        while True:
            await self._update_presence()
            reservation = (await self._call("PollReservation", token=self._token)).reservation
            if reservation.state == 1:
                self._place = reservation.allocations["main"]
                return
            if reservation.state != 0:
                raise Unavailable("the reservation is no longer valid")
            if time.monotonic() > deadline:
                raise Unavailable("no board was free in time")
            tokens = [waiter.token for waiter in await self._waiting()]
            # The session receives all holders; no need to query the coordinator.
            places = self._session.places
            busy = {name: holder for name in sorted(matching & places.keys()) if (holder := places[name].acquired)}
            position = tokens.index(self._token) + 1 if self._token in tokens else 1
            if reported != (position, busy) or time.monotonic() > next_line:
                reported, next_line = (position, busy), time.monotonic() + _REPORT
                (self._queue.report if self._queue else say)(position=position, busy=busy)
            for _ in range(_POLLS):
                if not any(place.reservation == self._token for place in places.values()):
                    await asyncio.sleep(_POLL)

    async def _cancel(self) -> None:
        token, self._token = self._token, ""
        if token:
            await self._call("CancelReservation", token=token)

    async def _heartbeat(self) -> None:
        tags = {_UNTIL: str(int(time.time() + _HEARTBEATS * self._interval)), _HOLDER: self.holder}
        await self._call("SetPlaceTags", placename=self._place, tags=tags)

    async def _hold(self) -> None:
        """Extend the deadline; report when the lease is lost."""
        next_beat, next_check = time.monotonic() + self._interval, 0.0
        try:
            while True:
                await asyncio.sleep(_POLL)
                if self._session.stopping.is_set():
                    await self._reacquire()
                    next_check = 0.0
                if time.monotonic() < next_check:
                    continue
                # An error here means that the session ends; the loop reconnects.
                with contextlib.suppress(grpc.RpcError):
                    places = await self._places()
                    next_check = time.monotonic() + max(_CHECK[0], _CHECK[1] * len(places))
                    holder = places[self._place].acquired if self._place in places else ""
                    if holder != self.holder:
                        raise Unavailable(f"it is held by {holder}" if holder else "it was released")
                    if time.monotonic() > next_beat:
                        next_beat = time.monotonic() + self._interval
                        await self._heartbeat()
        except Unavailable as lost:
            say(lost=str(lost))

    async def _reacquire(self) -> None:
        """Reacquire the place from a restarted coordinator that has lost its holder."""
        deadline = time.monotonic() + _AWAY
        while time.monotonic() < deadline:
            try:
                await self.connect()
                place = (await self._places()).get(self._place)
                if place is not None and not place.acquired:
                    await self._call("AcquirePlace", placename=self._place)
                    await self._heartbeat()
                await self.connect(QuietSession)
                return
            except (Unavailable, grpc.RpcError):
                await asyncio.sleep(1.0)
        raise Unavailable(f"the coordinator was away for {_AWAY:g} s")

    async def release(self, outcome: str = "") -> None:
        """Release the board, if still held.

        Args:
            outcome: ``verdict`` or ``infrastructure``; a few of the latter in a row quarantine the board.
        """
        self._leave_queue()
        if self._holding:
            self._holding.cancel()
        with contextlib.suppress(grpc.RpcError):
            await self._cancel()
        place, self._place = self._place, ""
        if place:
            try:
                await self._update_health(place, outcome)
            finally:
                await self._call("ReleasePlace", placename=place, fromuser=self.holder)

    async def _update_health(self, name: str, outcome: str) -> None:
        place = (await self._places()).get(name)
        if place is None or place.acquired != self.holder:
            return
        trouble = int(place.tags.get(_TROUBLE, "0")) + 1 if outcome == "infrastructure" else 0
        tags = {_UNTIL: "", _HOLDER: ""}
        # A board in quarantine stays there.
        if outcome and place.tags.get(_HEALTH) != "bad":
            tags[_TROUBLE] = str(trouble or "")
        if _TROUBLE in tags and trouble >= int(place.tags.get(_BAD_AFTER, "3")):
            tags[_HEALTH] = "bad"
            since = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
            comment = f"{trouble} runs in a row without a verdict, {since}; ./inv farm.heal {shlex.quote(name)}"
            await self._call("SetPlaceComment", placename=name, comment=comment)
        await self._call("SetPlaceTags", placename=name, tags=tags)


async def _reply(client: LabgridClient, request: dict[str, Any]) -> None:
    name = request.pop("do")
    try:
        await getattr(client, name)(**request)
        if name == "release":
            say()
    except Unavailable as error:
        say(error=str(error), kind=error.kind, hint=error.hint)
    except grpc.RpcError as error:
        say(error=str(error.details()), kind="infrastructure")
    except (ServerError, asyncio.TimeoutError):
        say(error="the coordinator does not answer", kind="infrastructure")


async def _serve(address: str) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, reader.feed_eof)
    client = LabgridClient(address)
    work: asyncio.Task[None] | None = None
    try:
        while line := await reader.readline():
            work = asyncio.create_task(_reply(client, json.loads(line)))
    finally:
        if work:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        await client.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
