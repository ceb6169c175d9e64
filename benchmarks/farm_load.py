# SPDX-License-Identifier: Apache-2.0
"""Idle jobs that stand in line for the places of a coordinator: run by benchmarks/farm.py in labgrid's own Python.

    python benchmarks/farm_load.py HOST:PORT PLACES JOBS SECONDS HOSTS LISTENERS

A place is a name here, with no board behind it; a job holds one for half to one and a half times the seconds,
sets its tags and looks now and then who holds it, as a lease does. All jobs are one session's. Beside it there
are others that the coordinator tells everything, as it does each client that waits for a board; with them, as
many jobs are in line at the coordinator, and the others wait for these. Idle time of
places is counted from the moment when all are held to the last lease. It prints a line of JSON.
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

_POLL = 5.0  # Seconds: a reservation that nobody asks after ends in 60.
_LOOK = 0.02
_HOLDER_LOOK = 0.1  # Seconds for each place between looks of a lease holder: utvm/farm/helper.py.
_AT_ONCE = 200  # Of more than 1,000 calls that wait for a server, gRPC cancels some: all jobs would begin at once.


class _Load:
    def __init__(self, session: ClientSession, lines: int) -> None:
        self._session = session
        self._lines = [asyncio.Lock() for _ in range(lines)]
        self._holder = f"{session.gethostname()}/{session.getuser()}"
        self._allocated: dict[str, str] = {}
        self.times: list[tuple[float, float]] = []
        self.overheads: list[float] = []
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def call(self, do: str, **what: Any) -> Any:
        async with self._turns:
            return await getattr(self._session.stub, do)(getattr(pb, f"{do}Request")(**what))

    async def job(self, number: int, seconds: float) -> None:
        async with self._lines[number % len(self._lines)]:
            name, begun = await self._lease()
        await self.call("SetPlaceTags", placename=name, tags={"utvm_until": "1"})
        asked = begun
        while (left := begun + seconds - time.monotonic()) > 0:
            await asyncio.sleep(min(1.0, left))
            if time.monotonic() > asked + max(2.0, _HOLDER_LOOK * len(self._session.places)):
                asked = time.monotonic()
                await self.call("GetPlaces")
        await self.call("SetPlaceTags", placename=name, tags={"utvm_until": ""})
        await self.call("ReleasePlace", placename=name, fromuser=self._holder)
        self.times.append((begun, begun + seconds))
        self.overheads.append(time.monotonic() - begun - seconds)

    async def _lease(self) -> tuple[str, float]:
        answer = await self.call("CreateReservation", prio=0.0, filters={"main": {"filter": {"kind": "load"}}})
        token = answer.reservation.token
        asked = time.monotonic()
        while not (name := self._allocated.get(token)):
            await asyncio.sleep(_LOOK)
            if time.monotonic() > asked + _POLL:
                asked = time.monotonic()
                await self.call("PollReservation", token=token)
        begun = time.monotonic()
        await self.call("AcquirePlace", placename=name)
        await self.call("CancelReservation", token=token)
        return name, begun

    async def watch(self) -> None:
        """Look now and then which place is whose to take: that the coordinator tells everybody."""
        while True:
            places = self._session.places.values()
            self._allocated = {place.reservation: place.name for place in places if place.reservation}
            await asyncio.sleep(_LOOK)


@contextlib.asynccontextmanager
async def _sessions(address: str, count: int) -> AsyncIterator[ClientSession]:
    """Have sessions with a coordinator, each by a connection of its own; yield the first."""
    begin = grpc.aio.insecure_channel
    # gRPC would share one connection among all.
    alone = ("grpc.use_local_subchannel_pool", 1)
    grpc.aio.insecure_channel = lambda target, options: begin(target=target, options=[*options, alone])
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
        measured = await _measured(_Load(session, listeners or jobs), places, jobs, seconds, hosts)
    return {**measured, "listeners": listeners}


async def _measured(load: _Load, places: int, jobs: int, seconds: int, hosts: int) -> dict[str, float]:
    begun = time.monotonic()
    for number in range(places):
        await load.call("AddPlace", name=f"p{number}")
        tags = {"kind": "load", "host": f"h{number % hosts}"}
        await load.call("SetPlaceTags", placename=f"p{number}", tags=tags)
    made = time.monotonic()
    watch = asyncio.create_task(load.watch())
    chance = random.Random(places)
    lengths = [chance.uniform(0.5, 1.5) * seconds for _ in range(jobs)]
    await asyncio.gather(*(load.job(number, length) for number, length in enumerate(lengths)))
    watch.cancel()
    took = time.monotonic() - made
    load.overheads.sort()
    load.times.sort()
    first, last = load.times[places - 1][0], load.times[-1][0]
    held = sum(max(0.0, min(end, last) - max(begin, first)) for begin, end in load.times)
    return {
        "places": places,
        "jobs": jobs,
        "seconds": seconds,
        "hosts": hosts,
        "making_s": round(made - begun, 2),
        "took_s": round(took, 2),
        "idle_percent": round(100 * (1 - held / (places * (last - first))), 2),
        "overhead_s": round(load.overheads[jobs // 2], 2),
        "worst_overhead_s": round(load.overheads[-1], 2),
    }


if __name__ == "__main__":
    _, where, *numbers = sys.argv
    wanted = [int(number) for number in numbers]
    print(json.dumps(asyncio.run(main(where, *wanted))))
