# SPDX-License-Identifier: Apache-2.0
"""Measures the sharing of boards: two boards against one, a lease's overhead for a job, and the size of a farm.

    python benchmarks/farm.py

On loopback, with labgrid's coordinator and exporters. Jobs wait and do nothing: boards are shared here, not cores.
Times are of this computer's clock, from the first lease on: before it, clients load their modules.
"""

import contextlib
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import yaml

from benchmarks import seen
from utvm.base.process import Service, free_port
from utvm.errors import ProvisionError
from utvm.farm.client import FarmClient, LeaseHolder, labgrid_python
from utvm.farm.hosted import coordinator

_JOBS, _SECONDS = 6, 10
_SIZES = ((200, 600, 60, 20, 0), (200, 600, 60, 20, 20), (200, 600, 60, 20, 200), (1000, 2000, 60, 100, 0))
"""Places, jobs, seconds of a job, hosts, and waiting clients, beside the one that has all jobs."""


def _quiet(_: str) -> None:
    pass


@contextlib.contextmanager
def _coordinator(folder: Path) -> Iterator[tuple[str, int]]:
    folder.mkdir()
    port = free_port()
    with coordinator(port, folder, folder / "coordinator.log", _quiet, anyone=False) as service:
        yield f"127.0.0.1:{port}", service.pid


def _run_shared(folder: Path, boards: int) -> tuple[float, float]:
    """Return the seconds of all jobs on this many boards, and the median overhead of a job."""
    names = [f"b{number}" for number in range(boards)]
    resources = {name: {"board": {"cls": "UtvmBoard"}} for name in names}
    with _coordinator(folder) as (address, _):
        (folder / "exporter.yaml").write_text(yaml.safe_dump(resources), encoding="utf-8")
        command = [str(labgrid_python(_quiet)), "-m", "labgrid.remote.exporter", "--coordinator", address]
        command += ["--name", "desk", str(folder / "exporter.yaml")]
        log = folder / "exporter.log"
        with Service("the exporter", command, log=log, health="^Exporter ready", error=ProvisionError):
            with FarmClient(address, folder / "labgrid.log", _quiet) as farm:
                for name in names:
                    farm.call("offer", place=name, match=f"desk/{name}/*", tags={"kind": "load"})
            return _run_jobs(folder, address, boards)


def _run_jobs(folder: Path, address: str, boards: int) -> tuple[float, float]:
    starts: list[float] = []
    ends: list[float] = []

    def job(number: int) -> None:
        with LeaseHolder(address, {"kind": "load"}, None, folder / f"job-{number}.log", _quiet) as leasing:
            leasing.wait()
            starts.append(time.monotonic())
            time.sleep(_SECONDS)
        ends.append(time.monotonic())

    threads = [threading.Thread(target=job, args=(number,)) for number in range(_JOBS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    duration = max(ends) - min(starts)
    return duration, duration * boards / _JOBS - _SECONDS


def _run_load(folder: Path, *numbers: int) -> dict[str, float]:
    with _coordinator(folder) as (address, pid):
        program = Path(__file__).with_name("farm_load.py")
        command = [labgrid_python(_quiet), program, address, *map(str, numbers)]
        completed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1200)
        seconds = sum(psutil.Process(pid).cpu_times()[:2])
    figures: dict[str, float] = json.loads(completed.stdout.splitlines()[-1])
    # The coordinator does one thing at a time, so its time for a job limits the number of jobs per second.
    return {**figures, "coordinator_ms": round(1000 * seconds / figures["jobs"], 1)}


def main() -> None:
    """Measure, print, and store the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (one_board, _), (two_boards, overhead) = (_run_shared(folder / str(boards), boards) for boards in (1, 2))
        shared = {"jobs": _JOBS, "seconds": _SECONDS, "one_s": round(one_board, 1), "two_s": round(two_boards, 1)}
        shared |= {"ratio": round(one_board / two_boards, 2), "overhead_s": round(overhead, 2)}
        print(shared, flush=True)
        loads = []
        for size in _SIZES:
            loads.append(_run_load(folder / f"load-{len(loads)}", *size))
            print(loads[-1], flush=True)
    seen.keep("farm", {"shared": shared, "loads": loads})


if __name__ == "__main__":
    main()
