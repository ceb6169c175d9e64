# SPDX-License-Identifier: Apache-2.0
"""Idle jobs that wait for the places of a coordinator; benchmarks/farm.py runs it in labgrid's own Python.

    python benchmarks/farm_load.py HOST:PORT PLACES JOBS SECONDS HOSTS LISTENERS

A place is a name without a board; a job holds one for half to one and a half times the seconds, sets its tags and
regularly checks who holds it, as a lease does. All jobs belong to one session. Other sessions listen, to which the
coordinator sends every change, as to each client that waits for a board; with them, as many jobs wait at the
coordinator, and the other jobs wait for these. Idle time of places is counted from the moment when all are held to the
last lease. It prints a line of JSON.
"""

import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from labgrid.remote.client import ClientSession
from labgrid.remote.generated import labgrid_coordinator_pb2 as pb

_POLL = 5.0  # Seconds: a reservation that is not polled ends after 60.
_LOOK = 0.02
_HOLDER_LOOK = 0.1  # Seconds for each place between checks of a lease holder: utvm/farm/helper.py.
_AT_ONCE = 200  # gRPC cancels some of more than 1,000 waiting calls: all jobs would start at once.


class _Load:
    def __init__(self, session: ClientSession, lines: int) -> None:
        self._session = session
        self._lines = [asyncio.Lock() for _ in range(lines)]
        self._holder = f"{session.gethostname()}/{session.getuser()}"
        self._allocated: dict[str, str] = {}
        self.times: list[tuple[float, float]] = []
        self.overheads: list[float] = []
        self._calls = asyncio.Semaphore(_AT_ONCE)

    async def call(self, method: str, **fields: Any) -> Any:
        async with self._calls:
            return await getattr(self._session.stub, method)(getattr(pb, f"{method}Request")(**fields))

    async def job(self, number: int, seconds: float) -> None:
        async with self._lines[number % len(self._lines)]:
            name, begin = await self._lease()
        await self.call("SetPlaceTags", placename=name, tags={"utvm_until": "1"})
        checked = begin
        while (remaining := begin + seconds - time.monotonic()) > 0:
            await asyncio.sleep(min(1.0, remaining))
            if time.monotonic() > checked + max(2.0, _HOLDER_LOOK * len(self._session.places)):
                checked = time.monotonic()
                await self.call("GetPlaces")
        await self.call("SetPlaceTags", placename=name, tags={"utvm_until": ""})
        await self.call("ReleasePlace", placename=name, fromuser=self._holder)
        self.times.append((begin, begin + seconds))
        self.overheads.append(time.monotonic() - begin - seconds)

    async def _lease(self) -> tuple[str, float]:
        reply = await self.call("CreateReservation", prio=0.0, filters={"main": {"filter": {"kind": "load"}}})
        token = reply.reservation.token
        polled = time.monotonic()
        while not (name := self._allocated.get(token)):
            await asyncio.sleep(_LOOK)
            if time.monotonic() > polled + _POLL:
                polled = time.monotonic()
                await self.call("PollReservation", token=token)
        begin = time.monotonic()
        await self.call("AcquirePlace", placename=name)
        await self.call("CancelReservation", token=token)
        return name, begin

    async def watch(self) -> None:
        """Regularly store which place each reservation has; the coordinator sends it to every session."""
        while True:
            places = self._session.places.values()
            self._allocated = {place.reservation: place.name for place in places if place.reservation}
            await asyncio.sleep(_LOOK)


@contextlib.asynccontextmanager
async def _sessions(address: str, count: int) -> AsyncIterator[ClientSession]:
    """Start sessions with a coordinator, each with its own connection; yield the first."""
    open_channel = grpc.aio.insecure_channel
    # By default, gRPC shares one connection among all.
    option = ("grpc.use_local_subchannel_pool", 1)
    grpc.aio.insecure_channel = lambda target, options: open_channel(target=target, options=[*options, option])
    sessions = [ClientSession(address, asyncio.get_running_loop()) for _ in range(count)]
    for session in sessions:
        await session.start()
    yield sessions[0]
    for session in sessions:
        session.stopping.set()
        await session.stop()
        await session.close()


async def main(address: str, places: int, jobs: int, seconds: int, hosts: int, listeners: int) -> dict[str, float]:
    async with _sessions(address, 1 + listeners) as session:
        measured = await _measure(_Load(session, listeners or jobs), places, jobs, seconds, hosts)
    return {**measured, "listeners": listeners}


async def _measure(load: _Load, places: int, jobs: int, seconds: int, hosts: int) -> dict[str, float]:
    begin_time = time.monotonic()
    for number in range(places):
        await load.call("AddPlace", name=f"p{number}")
        tags = {"kind": "load", "host": f"h{number % hosts}"}
        await load.call("SetPlaceTags", placename=f"p{number}", tags=tags)
    created = time.monotonic()
    watch = asyncio.create_task(load.watch())
    generator = random.Random(places)
    lengths = [generator.uniform(0.5, 1.5) * seconds for _ in range(jobs)]
    await asyncio.gather(*(load.job(number, length) for number, length in enumerate(lengths)))
    watch.cancel()
    duration = time.monotonic() - created
    load.overheads.sort()
    load.times.sort()
    first, last = load.times[places - 1][0], load.times[-1][0]
    held = sum(max(0.0, min(end, last) - max(begin, first)) for begin, end in load.times)
    return {
        "places": places,
        "jobs": jobs,
        "seconds": seconds,
        "hosts": hosts,
        "making_s": round(created - begin_time, 2),
        "took_s": round(duration, 2),
        "idle_percent": round(100 * (1 - held / (places * (last - first))), 2),
        "overhead_s": round(load.overheads[jobs // 2], 2),
        "worst_overhead_s": round(load.overheads[-1], 2),
    }


if __name__ == "__main__":
    _, server, *numbers = sys.argv
    print(json.dumps(asyncio.run(main(server, *map(int, numbers)))))
