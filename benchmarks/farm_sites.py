# SPDX-License-Identifier: Apache-2.0
"""Where one coordinator ends, and what one at each site does then: a simulation, from what ``farm.py`` measures.

    python benchmarks/farm_sites.py [BOARDS [HOSTS]]

A coordinator does one thing at a time, and tells each change of a place to every client. What that takes of a
processor is measured (``coordinator_ms`` with and without clients beside); jobs come and go by chance here,
twice as many are in line as there are boards, and each host is at one site. Prints how much of their time boards
are idle, for lack of a coordinator that is quick enough: once with a client for each job that has a board or
waits for one, and once with a client for each host with jobs that wait, and holders that look who has their
place.
"""

import heapq
import random
import sys

_JOB = 7e-3  # Processor seconds of a job, told to nobody else,
_JOB_PLACE = 1.8e-5  # and for each place that is scheduled,
_JOB_CLIENT = 1.2e-3  # and for each client that is told of it: four changes.
_SIGN_CLIENT = _JOB_CLIENT / 4
_LOOK, _LOOK_PLACE = 2.0, 0.1  # Seconds between looks of a holder, or so many for each place: utvm/farm/helper.py.
_BOARDS_OF_A_HOST = 10  # As many jobs of each host have a board, and twice as many wait.
_SIGN = 30.0  # Seconds between two signs of a lease, or one for each place.
_BEFORE, _ROUNDS = 3, 9  # Jobs of each board: those that are left out, and all.


def idle(boards: int, seconds: float, sites: int = 1, *, of_hosts: bool = True) -> float:
    """Return the share of their time in which boards wait for their coordinator.

    Args:
        boards: of all sites.
        seconds: that a job takes, in the mean.
        of_hosts: whether each host has one client, in place of one for each job.
    """
    own = boards // sites
    clients = -(-own // _BOARDS_OF_A_HOST) if of_hosts else 3 * own
    signs = own / max(_SIGN, own) * clients * _SIGN_CLIENT
    if of_hosts:
        signs += own / max(_LOOK, _LOOK_PLACE * own) * _JOB_PLACE * own
    if signs >= 1:
        return 1.0
    each = (_JOB + _JOB_PLACE * own + _JOB_CLIENT * clients) / (1 - signs)
    chance = random.Random(boards)
    ends = [chance.uniform(0, 1.5 * seconds) for _ in range(own)]
    heapq.heapify(ends)
    free = waited = held = 0.0
    for number in range(_ROUNDS * own):
        end, job = heapq.heappop(ends), chance.uniform(0.5, 1.5) * seconds
        free = max(free, end) + each
        heapq.heappush(ends, free + job)
        # By then it does not matter any more how it has begun.
        if number >= _BEFORE * own:
            waited, held = waited + free - end, held + job
    return waited / (waited + held)


def main(boards: int, hosts: int) -> None:
    """Print a table."""
    minutes = (1, 5, 10, 30)
    for of_hosts in (False, True):
        print("a client for each", "host" if of_hosts else "job")
        _table(boards, hosts, minutes, of_hosts)


def _table(boards: int, hosts: int, minutes: tuple[int, ...], of_hosts: bool) -> None:
    print(f"{'boards':>7} {'sites':>6}  " + "".join(f"{f'jobs of {each} min':>16}" for each in minutes))
    sizes = [(count, 1) for count in (50, 100, 200, 500)]
    for count, sites in [*sizes, *((boards, each) for each in (1, 2, 5, 10, 20) if each <= hosts)]:
        shares = "".join(f"{100 * idle(count, 60 * each, sites, of_hosts=of_hosts):14.1f} %" for each in minutes)
        print(f"{count:7} {sites:6}  {shares}")


if __name__ == "__main__":
    asked = [int(word) for word in sys.argv[1:]]
    main(*(asked or [1000]), *([100] if len(asked) < 2 else []))
