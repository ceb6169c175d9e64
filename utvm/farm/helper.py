# SPDX-License-Identifier: Apache-2.0
"""A client of labgrid's coordinator that speaks JSON lines: run by path, in labgrid's Python environment.

Each line of the standard input is a request, ``{"do": NAME, ...}``: a method of :class:`LabgridClient` and what it
takes. It is answered by one line, and a lease that has to wait by some before that. The end of the standard input
ends the lease, whatever has become of who held it. labgrid (26.0.1) never frees the place of a holder that is
gone, so a lease has a deadline too, in the place's tags: this process moves it on, ``reap`` frees what is past it.
"""

import asyncio
import contextlib
import json
import math
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import grpc
from labgrid.remote.client import ClientSession, ServerError
from labgrid.remote.generated import labgrid_coordinator_pb2 as pb

_BEAT = 30.0  # Seconds between signs of a lease's keeper,
_BEAT_FOR = 1.0  # or so many for each place, if that is more: labgrid tells each sign to every client.
_BEATS = 4  # So many of them a lease outlives the last one.
_LOOK = 0.2
_ASK = (2.0, 20.0)  # Seconds between questions of who waits; a reservation that nobody asks after ends in 60.
_ASKED_FOR = 0.05  # Seconds more of that for each who waits: all ask the one coordinator.
_AWAY = 60.0  # Seconds that the coordinator may be gone, or the hosts of all boards that would do.
_CONNECTING = 15.0
_UNTIL, _HOLDER, _TROUBLE, _HEALTH = "utvm_until", "utvm_holder", "utvm_trouble", "health"
_BAD_AFTER, _WELL_AFTER = "utvm_bad_after", "utvm_well_after"


class NotToBeHad(Exception):
    """What was asked for cannot be had; ``kind`` is usage, or infrastructure."""

    def __init__(self, message: str, kind: str = "infrastructure") -> None:
        super().__init__(message)
        self.kind = kind


class HostsAway(NotToBeHad):
    """The hosts of all boards that would do are away; one may be starting again."""


def say(**content: Any) -> None:
    """Write one line of the answer."""
    print(json.dumps(content), flush=True)


class LabgridClient:
    """One session with a coordinator, and at most one lease.

    Args:
        address: of the coordinator, HOST:PORT.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._session: Any = None
        self._place = self._token = ""
        self._keeping: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Begin a session, in place of the one that there was."""
        await self._disconnect()
        self._session = ClientSession(self._address, asyncio.get_running_loop())
        self.holder = f"{self._session.gethostname()}/{self._session.getuser()}"
        await asyncio.wait_for(self._session.start(), _CONNECTING)

    async def _disconnect(self) -> None:
        if self._session:
            self._session.stopping.set()
            with contextlib.suppress(Exception):
                await self._session.stop()
            await self._session.close()

    async def close(self) -> None:
        """End the lease and the session."""
        with contextlib.suppress(Exception):
            await self.release()
        await self._disconnect()

    async def _call(self, do: str, /, **what: Any) -> Any:
        return await getattr(self._session.stub, do)(getattr(pb, f"{do}Request")(**what), timeout=30)

    async def _places(self) -> dict[str, Any]:
        return {place.name: place for place in (await self._call("GetPlaces")).places}

    async def _waiting(self) -> list[Any]:
        found = (await self._call("GetReservations")).reservations
        waiting = [each for each in found if each.state == 0 and each.token != ""]
        return sorted(waiting, key=lambda each: (-each.prio, each.created))

    def _resources(self, name: str) -> dict[str, dict[str, Any]]:
        """Return what a place has at hand, by class: nothing where its exporter is away."""
        place = self._session.places.get(name)
        return {
            entry.cls: entry.args
            for exporter, groups in self._session.resources.items()
            for group, resources in groups.items()
            for resource, entry in resources.items()
            if entry.data and entry.avail and place and place.hasmatch((exporter, group, entry.cls, resource))
        }

    async def _synced(self) -> None:
        """Know what the coordinator has told everybody, by a new session where the old one has ended."""
        if self._session.stopping.is_set():
            await self.connect()
        # What waits for an answer in a session that ends just now waits for ever.
        await asyncio.wait_for(self._session.sync_with_coordinator(), _CONNECTING)

    async def list(self) -> None:
        """Say what places there are, and who waits."""
        await self._synced()
        places = [
            {
                "place": name,
                "tags": {key: value for key, value in sorted(place.tags.items()) if not key.startswith("utvm_")},
                "comment": place.comment,
                "holder": place.acquired,
                "present": bool(self._resources(name)),
                "judged": bool(place.tags.get(_TROUBLE)),
                "well_after": int(place.tags.get(_WELL_AFTER, "1")),
            }
            for name, place in sorted((await self._places()).items())
        ]
        waiting = [
            {"holder": each.owner, "wants": dict(each.filters["main"].filter), "since": each.created}
            for each in await self._waiting()
        ]
        say(places=places, waiting=waiting)

    async def offer(self, place: str, match: str, tags: dict[str, str]) -> None:
        """Make a place of what an exporter has; one that there is keeps its health."""
        known = (await self._places()).get(place)
        if known is None:
            await self._call("AddPlace", name=place)
            tags = {_HEALTH: "ok", **tags}
        if known is None or match not in {f"{m.exporter}/{m.group}/{m.cls}" for m in known.matches}:
            await self._call("AddPlaceMatch", placename=place, pattern=match)
        await self._call("SetPlaceTags", placename=place, tags=tags)
        say()

    async def mark(self, place: str, health: str, comment: str) -> None:
        """Say of a place that it is good or bad, and why."""
        await self._known(place)
        await self._call("SetPlaceTags", placename=place, tags={_HEALTH: health, _TROUBLE: ""})
        await self._call("SetPlaceComment", placename=place, comment=comment)
        say()

    async def _known(self, place: str) -> Any:
        places = await self._places()
        if place not in places:
            raise NotToBeHad(f"the farm has no place {place!r}", "usage")
        return places[place]

    async def reap(self, now: float | None = None) -> None:
        """Free the places whose lease is past its deadline, if it is still that lease."""
        now = time.time() if now is None else now
        freed = []
        for name, place in (await self._places()).items():
            tags = dict(place.tags)
            if place.acquired and place.acquired == tags.get(_HOLDER) and float(tags[_UNTIL]) < now:
                await self._call("ReleasePlace", placename=name, fromuser=place.acquired)
                freed.append({"place": name, "holder": place.acquired})
        say(freed=freed)

    async def lease(self, filters: dict[str, str], wait: float | None, but: Sequence[str] = ()) -> None:
        """Wait for a board in labgrid's line, and keep it until :meth:`release` or the end of the input.

        Args:
            but: places that are not wanted.
        """
        begun = time.monotonic()
        try:
            deadline = math.inf if wait is None else begun + wait
            while True:
                fitting = await self._at_hand(filters, but, deadline)
                wish = filters | await self._one_of(fitting) if but else filters
                await self._allocated(wish, fitting, deadline)
                resources = self._resources(self._place)
                if "UtvmBoard" in resources:
                    break
                # Its host has just gone: the place is no longer among the fitting ones.
                await self._cancel()
            await self._call("AcquirePlace", placename=self._place)
            # At once: else it stays idle for up to 15 s after it was released.
            await self._cancel()
            await self._beat()
        except BaseException:
            await asyncio.shield(self.release())
            raise
        self._keeping = asyncio.create_task(self._keep())
        say(
            place=self._place,
            holder=self.holder,
            waited=round(time.monotonic() - begun, 3),
            board=resources["UtvmBoard"],
            service=resources.get("NetworkService", {}),
            others=len(fitting - {self._place}),
        )

    async def _one_of(self, fitting: set[str]) -> dict[str, str]:
        places = await self._places()
        return {"name": min(fitting, key=lambda name: (bool(places[name].acquired), name))}

    async def _at_hand(self, filters: dict[str, str], but: Sequence[str], deadline: float) -> set[str]:
        """Return the places that a wish may get, as :meth:`_fitting`; where their hosts are away, wait for one."""
        last = min(time.monotonic() + _AWAY, deadline)
        told = ""
        while True:
            try:
                return await self._fitting(filters, but)
            except HostsAway as away:
                if time.monotonic() > last:
                    raise
                if str(away) != told:
                    told = str(away)
                    say(away=told)
            await asyncio.sleep(_ASK[0])

    async def _fitting(self, filters: dict[str, str], but: Sequence[str]) -> set[str]:
        """Return the places that a wish may get."""
        await self._synced()
        wish = {key: value for key, value in filters.items() if key != _HEALTH}
        spoken = ", ".join(f"{key}={value}" for key, value in wish.items())
        places = await self._places()
        fitting = [
            place for place in places.values() if wish.items() <= {"name": place.name, **dict(place.tags)}.items()
        ]
        if not fitting:
            raise NotToBeHad(f"no place of the farm has {spoken}", "usage")
        fitting = [place for place in fitting if place.name not in but]
        if not fitting:
            raise NotToBeHad(f"the farm has no other board with {spoken} than {', '.join(sorted(but))}")
        health = filters.get(_HEALTH)
        well = [place for place in fitting if health in (None, place.tags.get(_HEALTH))]
        if not well:
            why = "; ".join(f"{place.name}: {place.comment or 'no reason given'}" for place in fitting)
            raise NotToBeHad(f"all boards with {spoken} are in quarantine: {why}")
        present = {place.name for place in well if "UtvmBoard" in self._resources(place.name)}
        if not present:
            raise HostsAway(f"the hosts of all boards with {spoken} are away: {', '.join(p.name for p in well)}")
        return present

    async def _allocated(self, filters: dict[str, str], fitting: set[str], deadline: float) -> None:
        """Reserve, and wait until a place is ours to take."""
        answer = await self._call("CreateReservation", prio=0.0, filters={"main": {"filter": filters}})
        self._token = answer.reservation.token
        told = None
        while True:
            reservation = (await self._call("PollReservation", token=self._token)).reservation
            if reservation.state == 1:
                self._place = reservation.allocations["main"]
                return
            if reservation.state != 0:
                raise NotToBeHad("the reservation is no longer valid")
            if time.monotonic() > deadline:
                raise NotToBeHad("no board was free in time")
            tokens = [each.token for each in await self._waiting()]
            # Who has which place is told to everybody; the coordinator is not asked again.
            places = self._session.places
            busy = {name: holder for name in sorted(fitting & places.keys()) if (holder := places[name].acquired)}
            position = tokens.index(self._token) + 1 if self._token in tokens else 1
            if told != (position, busy):
                told = (position, busy)
                say(position=position, busy=busy)
            # One whom hundreds ask all the time has time for nothing else.
            asked, least, most = time.monotonic(), *_ASK
            while (
                time.monotonic() < asked + min(most, max(least, _ASKED_FOR * len(tokens))) and not self._is_told()
            ):
                await asyncio.sleep(_LOOK)

    def _is_told(self) -> bool:
        return any(place.reservation == self._token for place in self._session.places.values())

    async def _cancel(self) -> None:
        token, self._token = self._token, ""
        if token:
            await self._call("CancelReservation", token=token)

    async def _beat(self) -> None:
        tags = {_UNTIL: str(int(time.time() + _BEATS * self._between())), _HOLDER: self.holder}
        await self._call("SetPlaceTags", placename=self._place, tags=tags)

    def _between(self) -> float:
        return max(_BEAT, _BEAT_FOR * len(self._session.places))

    async def _keep(self) -> None:
        """Move the deadline on, and say when the lease is lost."""
        next_beat = time.monotonic() + self._between()
        try:
            while True:
                await asyncio.sleep(_LOOK)
                if self._session.stopping.is_set():
                    await self._again()
                place = self._session.places.get(self._place)
                if place is None or place.acquired != self.holder:
                    holder = place.acquired if place else None
                    raise NotToBeHad(f"it is held by {holder}" if holder else "it was released")
                if time.monotonic() > next_beat:
                    next_beat = time.monotonic() + self._between()
                    with contextlib.suppress(grpc.RpcError):
                        await self._beat()
        except NotToBeHad as lost:
            say(lost=str(lost))

    async def _again(self) -> None:
        """Take the place again, by its name, from a coordinator that was away: it has forgotten who held it."""
        deadline = time.monotonic() + _AWAY
        while time.monotonic() < deadline:
            try:
                await self.connect()
                place = (await self._places()).get(self._place)
                if place is not None and not place.acquired:
                    await self._call("AcquirePlace", placename=self._place)
                    await self._beat()
                    await self._session.sync_with_coordinator()
                return
            except (ServerError, grpc.RpcError, asyncio.TimeoutError):
                await asyncio.sleep(1.0)
        raise NotToBeHad(f"the coordinator was away for {_AWAY:g} s")

    async def release(self, outcome: str = "") -> None:
        """Give the board back: if it is still ours.

        Args:
            outcome: of the run: ``verdict``, or ``infrastructure``, of which a few in a row make a board bad.
        """
        if self._keeping:
            self._keeping.cancel()
        with contextlib.suppress(grpc.RpcError):
            await self._cancel()
        place, self._place = self._place, ""
        if place:
            try:
                await self._judge(place, outcome)
            finally:
                await self._call("ReleasePlace", placename=place, fromuser=self.holder)

    async def _judge(self, name: str, outcome: str) -> None:
        place = (await self._places()).get(name)
        if place is None or place.acquired != self.holder:
            return
        trouble = int(place.tags.get(_TROUBLE, "0")) + 1 if outcome == "infrastructure" else 0
        tags = {_UNTIL: "", _HOLDER: ""}
        # One that is in quarantine stays there as it was put there.
        if outcome and place.tags.get(_HEALTH) != "bad":
            tags[_TROUBLE] = str(trouble or "")
        if _TROUBLE in tags and trouble >= int(place.tags.get(_BAD_AFTER, "3")):
            tags[_HEALTH] = "bad"
            since = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
            comment = f"{trouble} runs in a row without a verdict, {since}; ./inv farm.heal {name}"
            await self._call("SetPlaceComment", placename=name, comment=comment)
        await self._call("SetPlaceTags", placename=name, tags=tags)


async def _answer(client: LabgridClient, request: dict[str, Any]) -> None:
    name = request.pop("do")
    try:
        await getattr(client, name)(**request)
        if name == "release":
            say()
    except NotToBeHad as error:
        say(error=str(error), kind=error.kind)
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
        await client.connect()
        say(ready=True)
        while line := await reader.readline():
            work = asyncio.create_task(_answer(client, json.loads(line)))
    except (ServerError, grpc.RpcError, asyncio.TimeoutError):
        say(error=f"no coordinator answers at {address}", kind="infrastructure")
    finally:
        if work:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        await client.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
