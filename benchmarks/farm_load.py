# SPDX-License-Identifier: Apache-2.0
"""Idle jobs that stand in line for the places of a coordinator: run by benchmarks/farm.py in labgrid's own Python.

    python benchmarks/farm_load.py HOST:PORT PLACES JOBS SECONDS HOSTS

A place is a name here, with no board behind it; a job holds one for some seconds. Prints one line of JSON.
"""

import asyncio
import json
import sys
import time
from typing import Any

from labgrid.remote.client import ClientSession
from labgrid.remote.generated import labgrid_coordinator_pb2 as pb

_POLL = 5.0  # Seconds: a reservation that nobody asks after ends in 60.
_LOOK = 0.02


class _Load:
    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._holder = f"{session.gethostname()}/{session.getuser()}"
        self.held = 0.0
        self.overheads: list[float] = []

    async def call(self, do: str, **what: Any) -> Any:
        return await getattr(self._session.stub, do)(getattr(pb, f"{do}Request")(**what))

    async def job(self, seconds: float) -> None:
        answer = await self.call("CreateReservation", prio=0.0, filters={"main": {"filter": {"kind": "load"}}})
        token = answer.reservation.token
        asked = time.monotonic()
        while not (name := self._allocated(token)):
            await asyncio.sleep(_LOOK)
            if time.monotonic() > asked + _POLL:
                asked = time.monotonic()
                await self.call("PollReservation", token=token)
        begun = time.monotonic()
        await self.call("AcquirePlace", placename=name)
        await self.call("CancelReservation", token=token)
        await asyncio.sleep(seconds)
        await self.call("ReleasePlace", placename=name, fromuser=self._holder)
        self.held += seconds
        self.overheads.append(time.monotonic() - begun - seconds)

    def _allocated(self, token: str) -> str:
        """Return the place that is ours to take: the coordinator tells everybody, so that nobody need ask."""
        places = self._session.places.values()
        return next((place.name for place in places if place.reservation == token), "")


async def main(address: str, places: int, jobs: int, seconds: int, hosts: int) -> dict[str, float]:
    session = ClientSession(address, asyncio.get_running_loop())
    await session.start()
    load = _Load(session)
    begun = time.monotonic()
    for number in range(places):
        await load.call("AddPlace", name=f"p{number}")
        tags = {"kind": "load", "host": f"h{number % hosts}"}
        await load.call("SetPlaceTags", placename=f"p{number}", tags=tags)
    made = time.monotonic()
    await asyncio.gather(*(load.job(seconds) for _ in range(jobs)))
    took = time.monotonic() - made
    session.stopping.set()
    await session.stop()
    await session.close()
    load.overheads.sort()
    return {
        "places": places,
        "jobs": jobs,
        "seconds": seconds,
        "hosts": hosts,
        "making_s": round(made - begun, 2),
        "took_s": round(took, 2),
        "idle_percent": round(100 * (1 - load.held / (places * took)), 2),
        "overhead_s": round(load.overheads[jobs // 2], 2),
        "worst_overhead_s": round(load.overheads[-1], 2),
    }


if __name__ == "__main__":
    _, where, *numbers = sys.argv
    wanted = [int(number) for number in numbers]
    print(json.dumps(asyncio.run(main(where, *wanted))))
