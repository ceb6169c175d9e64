# SPDX-License-Identifier: Apache-2.0
"""Simulates the limit of one coordinator, and of one at each site, from the figures of ``farm.py``.

    python benchmarks/farm_sites.py [BOARDS [HOSTS]]

A coordinator does one thing at a time, and sends each change of a place to every client. Its processor time for that is
measured (``coordinator_ms`` with and without further clients); here, jobs come and go at random, twice as many wait as
there are boards, and each host is at one site. Prints the share of time that boards are idle because the coordinator is
too slow: once with a client for each job that has a board or waits for one, and once with a client for each host with
waiting jobs, and lease holders that check who has their place.
"""

import heapq
import random
import sys

_JOB = 7e-3  # Processor seconds of a job without other clients,
_JOB_PLACE = 1.8e-5  # and for each place that is scheduled,
_JOB_CLIENT = 1.2e-3  # and for each client, which gets four changes.
_SIGN_CLIENT = _JOB_CLIENT / 4
_LOOK, _LOOK_PLACE = 2.0, 0.1  # Seconds between checks of a holder, or seconds for each place: utvm/farm/helper.py.
_BOARDS_OF_A_HOST = 10  # As many jobs of each host have a board, and twice as many wait.
_SIGN = 30.0  # Seconds between two signs of life of a lease, or one second for each place.
_BEFORE, _ROUNDS = 3, 9  # Jobs of each board: those that are not counted, and all.


def idle(boards: int, seconds: float, sites: int = 1, *, of_hosts: bool = True) -> float:
    """Return the share of their time in which boards wait for their coordinator.

    Args:
        boards: the boards of all sites.
        seconds: the mean seconds of a job.
        of_hosts: whether each host has one client, in place of one for each job.
    """
    site_boards = boards // sites
    clients = -(-site_boards // _BOARDS_OF_A_HOST) if of_hosts else 3 * site_boards
    signs = site_boards / max(_SIGN, site_boards) * clients * _SIGN_CLIENT
    if of_hosts:
        signs += site_boards / max(_LOOK, _LOOK_PLACE * site_boards) * _JOB_PLACE * site_boards
    if signs >= 1:
        return 1.0
    job_cost = (_JOB + _JOB_PLACE * site_boards + _JOB_CLIENT * clients) / (1 - signs)
    generator = random.Random(boards)
    ends = [generator.uniform(0, 1.5 * seconds) for _ in range(site_boards)]
    heapq.heapify(ends)
    free = waited = held = 0.0
    for number in range(_ROUNDS * site_boards):
        end, job = heapq.heappop(ends), generator.uniform(0.5, 1.5) * seconds
        free = max(free, end) + job_cost
        heapq.heappush(ends, free + job)
        # From then on, the start has no effect.
        if number >= _BEFORE * site_boards:
            waited, held = waited + free - end, held + job
    return waited / (waited + held)


def main(boards: int, hosts: int) -> None:
    """Print a table for each kind of client."""
    minutes = (1, 5, 10, 30)
    for of_hosts in (False, True):
        print("a client for each", "host" if of_hosts else "job")
        _table(boards, hosts, minutes, of_hosts)


def _table(boards: int, hosts: int, minutes: tuple[int, ...], of_hosts: bool) -> None:
    print(f"{'boards':>7} {'sites':>6}  " + "".join(f"{f'jobs of {length} min':>16}" for length in minutes))
    sizes = [(count, 1) for count in (50, 100, 200, 500)]
    for count, sites in [*sizes, *((boards, number) for number in (1, 2, 5, 10, 20) if number <= hosts)]:
        shares = "".join(f"{100 * idle(count, 60 * length, sites, of_hosts=of_hosts):14.1f} %" for length in minutes)
        print(f"{count:7} {sites:6}  {shares}")


if __name__ == "__main__":
    arguments = [int(word) for word in sys.argv[1:]]
    main(*(arguments or [1000]), *([100] if len(arguments) < 2 else []))
