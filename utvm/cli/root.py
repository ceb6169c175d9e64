"""The commands without a namespace: ``hil``, ``nightly``, ``test`` and ``doctor``."""

from invoke.context import Context

from utvm.choice import BoardChoice, ReportChoice
from utvm.cli import task
from utvm.errors import ExitCode


@task(
    help={
        "suite": "only these suites, comma-separated: health, flash, memory, debug, counter, operators, int8, "
        "digits, cifar10, faults, ram, rpc, rpc_faults, standing_alone",
        "in": "where to run: host, this computer as it is; docker, a container of the locked environment (see "
        "docker.build); vm, its virtual machine (see vm.box); default: here",
        "usb": "with --in vm: st-link or cmsis-dap, the probe of a virtual board that stays on this computer, "
        "plugged into the machine's USB",
    },
)
def hil(
    _: Context, where: BoardChoice, *, suite: str = "", reports: ReportChoice, in_: str = "", usb: str = ""
) -> ExitCode:
    """Run the hardware-in-the-loop suites on a board and report the verdict."""
    from utvm.cli.root_hil import run_suites

    return run_suites(where, suite, reports, in_, usb)


@task(
    knows_boards=True,
    help={
        "config": "list of boards (default: the project's nightly.yaml)",
        "only": "only these boards of the list, comma-separated",
        "jobs": "boards at once (default: one for each core, and each with 1 GiB of free memory)",
        "report_dir": "folder of all nightly reports (default: build/reports/nightly)",
    },
)
def nightly(_: Context, config: str = "", only: str = "", jobs: int = 0, report_dir: str = "") -> ExitCode:
    """Run the suites on every board of a list, several at once, and report on all of them in one place."""
    from utvm.cli.root_hil import run_nightly

    return run_nightly(config, only, jobs, report_dir)


@task(help={"quick": "only what takes under two minutes", "nightly": "also what takes long: fuzzers, soak runs"})
def test(_: Context, quick: bool = False, nightly: bool = False) -> ExitCode:
    """Run the project's own tests, which need no board: everything, or less, or more."""
    from utvm.cli.root_test import run_tests

    return run_tests(quick, nightly)


@task()
def doctor(_: Context) -> ExitCode:
    """Print what this machine has, what it lacks, and how to get it."""
    from utvm.cli.root_doctor import examine

    return examine()
