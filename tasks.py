"""The table of contents: every ``./inv`` command, in a few lines each. The work is done in utvm."""

from pathlib import Path

from invoke import Collection, Context

import tasks_environment
from utvm.cli import task
from utvm.errors import ExitCode

_MODEL = "an ONNX, TensorFlow Lite, PyTorch (.pt2) or Relax (.py, .json) file"
_EXECUTOR = "aot (default) calls the operators one after another, graph reads a graph description; same results"
_COMPILE = {
    "model": _MODEL,
    "board": "compile for what this board's CPU has; without it, for any C99 compiler",
    "executor": _EXECUTOR,
    "memory": "memory regions, the fastest first: fast=16K,slow (default: one, arena)",
    "pin": "tensors that must lie in a region: TENSOR=REGION, comma-separated",
}
_WHERE = {
    "board": "name of a board (see board.list) or path of its folder; NAME:SETTING=VALUE chooses (see board.show)",
    "physical": "insist on a board that is plugged in",
    "virtual": "use the virtual board even if a physical one is plugged in",
    "serial": "serial number of the probe, where several are plugged in (see board.detect)",
}

_IN_RAM = "into RAM alone, for the debug port: flash stays as it is, and where things lie is chosen for you"


@task(
    help=_WHERE
    | {
        "suite": "only these suites, comma-separated: health, flash, memory, debug, counter, operators, int8, "
        "digits, cifar10, faults, ram, rpc, rpc_faults, standing_alone",
        "in": "where to run: host, this computer as it is; docker, a container of the locked environment (see "
        "docker.build); vm, its virtual machine (see vm.box); default: here",
        "usb": "with --in vm: st-link or cmsis-dap, the probe of a virtual board that stays on this computer, "
        "plugged into the machine's USB",
        "report_dir": "folder of all reports (default: build/reports)",
    }
)
def hil(
    _: Context,
    board: str = "",
    physical: bool = False,
    virtual: bool = False,
    serial: str = "",
    suite: str = "",
    report_dir: str = "",
    in_: str = "",
    usb: str = "",
) -> ExitCode:
    """Run the hardware-in-the-loop suites on a board and report the verdict."""
    from utvm.cli.hil import run_suites
    from utvm.cli.opening import Where

    return run_suites(Where(board, physical, virtual, serial), suite, report_dir, in_, usb)


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
    from utvm.cli.hil import run_nightly

    return run_nightly(config, only, jobs, report_dir)


@task(help={"quick": "only what takes under two minutes", "nightly": "also what takes long: fuzzers, soak runs"})
def test(_: Context, quick: bool = False, nightly: bool = False) -> ExitCode:
    """Run the project's own tests, which need no board: everything, or less, or more."""
    from utvm.cli.checks import run_tests

    return run_tests(quick, nightly)


@task
def doctor(_: Context) -> ExitCode:
    """Print what this machine has, what it lacks, and how to get it."""
    from utvm.cli.doctor import examine

    return examine()


@task(name="list", knows_boards=True)
def board_list(_: Context) -> None:
    """List the boards: the project's, and your own."""
    from utvm.cli.boards import list_boards

    list_boards()


@task(name="show", knows_boards=True, positional=["name"], help={"name": _WHERE["board"]})
def board_show(_: Context, name: str) -> None:
    """Print one board's memory map, probe, toolchain and console."""
    from utvm.cli.boards import show_board

    show_board(name)


@task(name="detect", knows_boards=True)
def board_detect(_: Context) -> None:
    """List the debug probes on USB with serial numbers and USB paths."""
    from utvm.cli.boards import detect_boards

    detect_boards()


@task(
    name="install-udev",
    knows_boards=True,
    # -d is --debug.
    auto_shortflags=False,
    help={
        "output": "only write the file, into this folder: for another machine",
        "dry_run": "only print the rules and what would be done",
    },
)
def board_install_udev(_: Context, output: str = "", dry_run: bool = False) -> None:
    """Install udev rules that let you use the probes of all boards; root's part goes through sudo."""
    from utvm.cli.udev import install_udev

    install_udev(output, dry_run)


@task(
    name="virtual",
    help={
        "board": _WHERE["board"],
        "port": "TCP port for OpenOCD's st-link backend (its default, 7184; with --usb any free one)",
        "latency": "microseconds that each command of a probe takes (a real ST-Link: about 2000)",
        "usb": "a probe on USB as well: st-link or cmsis-dap, served over usbredir",
        "listen": "where it is plugged in: unix:PATH, or a TCP port of 127.0.0.1",
        "serial": "its serial number",
    },
)
def board_virtual(
    _: Context,
    board: str = "",
    port: str = "",
    latency: int = 0,
    usb: str = "",
    listen: str = "",
    serial: str = "",
) -> None:
    """Keep a virtual board running for your own OpenOCD or debugger, until Ctrl-C."""
    from utvm.cli.boards import serve_virtual

    serve_virtual(board, port, latency, usb=usb, listen=listen, serial=serial)


@task(
    name="serve",
    help=_WHERE
    | {
        "board": _WHERE["board"] + "; host is a process on this computer",
        "model": _MODEL,
        "executor": _EXECUTOR,
        "listen": "address to listen on (default: 127.0.0.1, this computer only; the protocol has no passwords)",
        "port": "TCP port (default: 9090; 0 takes any free one)",
        "tracker": "HOST:PORT of a TVM RPC tracker to register with",
        "key": "RPC key of the board (default: its name)",
        "transport": "console (default), rtt or semihosting; for host: stdio (default) or tcp",
    },
)
def board_serve(
    _: Context,
    board: str = "",
    model: str = "",
    listen: str = "127.0.0.1",
    port: int = 9090,
    tracker: str = "",
    key: str = "",
    executor: str = "aot",
    transport: str = "",
    physical: bool = False,
    virtual: bool = False,
    serial: str = "",
) -> None:
    """Put a model on a board and serve the board to TVM's RPC clients, until Ctrl-C."""
    from utvm.cli.opening import Where
    from utvm.cli.serve import serve_board

    where = Where(board, physical, virtual, serial)
    serve_board(where, Path(model), executor, transport, listen, port, tracker, key)


@task(
    name="run",
    help=_WHERE
    | {
        "model": _MODEL,
        "executor": _EXECUTOR,
        "input": "input as .npy, or .npz with an array for each input; without it, seeded random values",
        "output": "where to write the output: .npy, or .npz for several",
        "json": "where to write figures and the SHA-256 of the outputs",
        "standing_alone": "the board runs it by itself: flashed with its input, switched off and on, listened to",
        "in_ram": f"load it {_IN_RAM}",
    },
)
def model_run(
    _: Context,
    model: str = "",
    board: str = "",
    input: str = "",  # noqa: A002  the option's name
    output: str = "",
    json: str = "",
    executor: str = "aot",
    standing_alone: bool = False,
    in_ram: bool = False,
    physical: bool = False,
    virtual: bool = False,
    serial: str = "",
) -> None:
    """Run a model of your own on a board: outputs, instructions or cycles, flash and RAM."""
    from utvm.cli.model import run_model

    run_model(Path(model), board, input, output, json, executor, standing_alone, in_ram, physical, virtual, serial)


@task(
    name="eval",
    help=_WHERE
    | {
        "model": "cifar10_cnn, digits, digits_int8 or resnet18, the project's own; or " + _MODEL,
        "samples": "how many samples (default: 10, or all that --inputs holds)",
        "validate_against": "a board that runs the same: exit code 1 if an output differs in a bit",
        "weights": "a file of weights for cifar10_cnn, as its README.md says (default: seeded random ones)",
        "inputs": ".npy or .npz of samples; for cifar10_cnn, uint8 images (default: the model's own, or random)",
        "seed": "of what is random: weights and samples",
        "json": "where to write every prediction, its count and outputs, and what differs",
    },
)
def model_eval(
    _: Context,
    model: str = "",
    board: str = "",
    samples: int = 0,
    validate_against: str = "",
    weights: str = "",
    inputs: str = "",
    seed: int = 0,
    json: str = "",
    physical: bool = False,
    virtual: bool = False,
    serial: str = "",
) -> ExitCode:
    """Run a model on samples on a board, print each prediction, and compare with another board bit for bit."""
    from models.catalogue import CATALOGUE
    from utvm.cli.eval import Asked, evaluate
    from utvm.cli.opening import Where

    asked = Asked(model, samples, weights, inputs, seed)
    return evaluate(CATALOGUE, asked, Where(board, physical, virtual, serial), validate_against, json)


@task(name="package", help=_COMPILE | {"output": "the archive to write (default: the model's name and .tar)"})
def model_package(
    _: Context,
    model: str = "",
    board: str = "",
    executor: str = "aot",
    memory: str = "",
    pin: str = "",
    output: str = "",
) -> None:
    """Compile a model into an archive for other people's builds: CMake, Zephyr, Arduino, any C99 compiler."""
    from utvm.cli.library import package, wanted

    package(wanted(model, board, executor, memory, pin), output)


@task(
    name="report",
    help=_COMPILE
    | {
        "output": "folder for the report's folder (default: build)",
        "misra": "count what cppcheck finds of MISRA C:2012; takes minutes",
    },
)
def model_report(
    _: Context,
    model: str = "",
    board: str = "",
    executor: str = "aot",
    memory: str = "",
    pin: str = "",
    output: str = "",
    misra: bool = False,
) -> None:
    """Compile a model and show its operators, what stayed in float and why, and the memory plan."""
    from utvm.cli.library import report, wanted

    report(wanted(model, board, executor, memory, pin), output, misra)


@task(
    name="profile",
    help=_WHERE
    | {
        "model": _MODEL,
        "executor": _EXECUTOR,
        "input": "input as .npy, or .npz with an array for each input; without it, seeded random values",
        "output": "folder for the profile's folder (default: build)",
    },
)
def model_profile(
    _: Context,
    model: str = "",
    board: str = "",
    input: str = "",  # noqa: A002  the option's name
    output: str = "",
    executor: str = "aot",
    physical: bool = False,
    virtual: bool = False,
    serial: str = "",
) -> None:
    """Run a model on a board and show what each of its operators takes, as a table and a picture."""
    from utvm.cli.opening import Where
    from utvm.cli.profile import profile_model

    profile_model(Where(board, physical, virtual, serial), Path(model), executor, input, output)


@task(name="size", help={"model": _MODEL, "board": _WHERE["board"], "in_ram": f"link it {_IN_RAM}"})
def firmware_size(_: Context, model: str = "", board: str = "", in_ram: bool = False) -> None:
    """Build a model's firmware and print flash and RAM by section, against what the board has."""
    from utvm.cli.model import print_size

    print_size(Path(model), board, in_ram)


@task(
    name="build",
    help={
        "model": _MODEL,
        "board": _WHERE["board"],
        "input": "input to store in the image, as for model.run; without it, seeded random values",
        "output": "the ELF file to write (default: the model's name and .elf); a .bin file comes beside it",
    },
)
def firmware_build(
    _: Context,
    model: str = "",
    board: str = "",
    input: str = "",  # noqa: A002  the option's name
    output: str = "",
) -> None:
    """Build firmware that needs no host: it runs the model on a stored input and prints the result."""
    from utvm.cli.firmware import build_firmware

    build_firmware(Path(model), board, input, output)


@task(name="boards")
def docs_boards(_: Context) -> None:
    """Write docs/boards.md from the boards' files and from what benchmarks/boards.py measured."""
    from utvm.cli.board_docs import write_page

    write_page()


@task(name="python")
def lock_python(_: Context) -> None:
    """Resolve provision/python.in into the hash-locked provision/python.lock (needs uv)."""
    from utvm.cli.checks import lock_python_packages

    lock_python_packages()


def _namespace() -> Collection:
    root = Collection(hil, nightly, test, doctor)
    for name, members in {
        "board": (board_list, board_show, board_detect, board_install_udev, board_virtual, board_serve),
        "model": (model_run, model_eval, model_profile, model_package, model_report),
        "firmware": (firmware_build, firmware_size),
        "docs": (docs_boards,),
        "lock": (lock_python,),
        **tasks_environment.MEMBERS,
    }.items():
        collection = Collection(name)
        for member in members:
            collection.add_task(member)
        root.add_collection(collection)
    return root


namespace = _namespace()
