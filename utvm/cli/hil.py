"""What ``hil`` does."""

from utvm import boards, hil
from utvm.attach import find_probe, wish
from utvm.errors import ExitCode


def run_suites(board: str, physical: bool, virtual: bool, serial: str, suites: str) -> ExitCode:
    """Run suites on a board.

    Args:
        suites: names of suites, separated by commas; empty for all.

    Raises:
        ConfigError: no such board or suite, or switches that exclude each other.
        ProbeError: the physical board that was asked for is not plugged in.
    """
    kind = wish(physical, virtual)
    # Wrong words on the command line are answered before a run begins and a report is written.
    find_probe(boards.load(board), kind, serial)
    return hil.run(board, kind, serial=serial, suites=[name.strip() for name in suites.split(",") if name.strip()])
