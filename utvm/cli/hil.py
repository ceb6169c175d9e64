"""What ``hil`` does."""

from utvm import boards, hil
from utvm.attach import find_probe, wish
from utvm.boards import Board
from utvm.errors import ConfigError, ExitCode


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
    known = boards.load_any(board)
    if isinstance(known, Board):
        find_probe(known, kind, serial)
    elif physical or virtual or serial:
        raise ConfigError(f"{board} is a process: it is neither plugged in nor virtual", "leave that out")
    return hil.run(board, kind, serial=serial, suites=[name.strip() for name in suites.split(",") if name.strip()])
