# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints and the exit codes it ends with."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import utvm
from tests.cli.running import inv
from utvm.paths import ROOT

DIGITS = ROOT / "models" / "digits" / "digits.onnx"
_SERVE = ["board.serve", "--model", DIGITS, "--board"]


def test_boards_are_listed_and_shown() -> None:
    assert "stm32f746" in inv("board.list").stdout
    shown = inv("board.show", "stm32f746").stdout
    for part in ("0x08000000", "1024 KiB", "sram1", "USART3", "216 MHz"):
        assert part in shown


def test_detect_is_no_error_without_a_probe() -> None:
    done = inv("board.detect")
    assert done.returncode == 0
    assert done.stdout


def test_doctor_finds_this_machine_complete() -> None:
    done = inv("doctor")
    assert done.returncode == 0, done.stdout
    for part in ("openocd", "arm-none-eabi", "apache-tvm", "USB stack"):
        assert part in done.stdout


def test_doctor_says_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    done = inv("doctor", PATH=str(tmp_path))
    assert done.returncode == 3
    assert "sudo apt-get install gcc-arm-none-eabi" in done.stdout


def test_doctor_calls_nothing_missing_unchecked() -> None:
    # Enough for Python and for the lists that it reads, and none for what it asks.
    command = f"ulimit -n 8; exec {sys.executable} -m utvm doctor"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "error: Too many open files" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-command"], "no-such-command"),
        (["--list", "no-such-namespace"], "no-such-namespace"),
        (["nightly", "--list", "nightly.yaml"], "nightly.yaml"),
        (["board.rest"], "did you mean board.reset?"),
        (["docs.sites"], "did you mean docs.site?"),
        (["hil", "--bord", "host"], "did you mean --board?"),
        (["hil", "--suite", "digits", "--suite", "rpc"], "--suite is given twice"),
        (["hil", "--suite=digits", "--board=host", "--suite=rpc"], "--suite is given twice"),
        (["hil"], "board"),
        (["hil", "--board", "no-such-board"], "there is no board 'no-such-board'"),
        (["hil", "--board", "stm32f746", "--colour"], "--colour"),
        (["hil", "--board", "stm32f746", "--physical", "--virtual"], "exclude each other"),
        (["hil", "--board", "stm32f746", "--suite", "no-such"], "no-such"),
        (["test", "--quick", "--nightly"], "exclude each other"),
        (["model.run", "--model", "none.onnx", "--board", "stm32f746"], "none.onnx"),
        (["model.run", "--model", DIGITS, "--board", "stm32f746", "--input", "none.npy"], "none.npy"),
        (["model.run", "--model", ROOT / "README.md", "--board", "stm32f746"], "README.md"),
        (
            ["model.run", DIGITS, "--board", "stm32f746", "--set=in-ram=yes", "--standing-alone"],
            "exclude each other: RAM loses",
        ),
        (["firmware.size", "--model", DIGITS, "--board", "nowhere/board"], "nowhere/board"),
        (["board.show", "no-such-board"], "no-such-board"),
        (["board.gdb", "--model", DIGITS, "--board", "host"], "host has no debug port"),
        (["board.gdb", "--elf", "none.elf", "--board", "host"], "hint: choose a board with one"),
        (["board.reset", "--board", "host"], "host has no debug port"),
        (["firmware.flash", "none.elf", "--board", "host"], "host has no debug port"),
        (["hil", "--help-me"], "--help-me"),
        (["firmware.size", "--model=", "--board", "stm32f746"], "no model is named"),
        (["board.virtual", "--board", "stm32f746", "--port", "abc"], "abc"),
        (["board.virtual", "--board", "stm32f746", "--port", "99999"], "65535"),
        (["board.virtual", "--board", "stm32f746", "--latency", "-5"], "--latency from 0"),
        (["board.virtual", "--board", "stm32f746", "--usb", "j-link", "--listen", "0"], "--usb j-link"),
        (["board.virtual", "--board", "stm32f746", "--listen", "0"], "--usb is missing"),
        (["board.virtual", "--board", "stm32f746", "--usb", "st-link"], "--listen is missing"),
        (
            ["board.virtual", "--board", "stm32f746", "--usb", "st-link", "--listen", "unix:/no-such/x"],
            "--listen unix:/no-such/x: its folder does not exist",
        ),
        (["model.run", "--model", str(DIGITS), "--board", "host", "--set=in-ram=yes"], "it has no debug port"),
        (["board.virtual", "--board", "stm32f746", "--usb", "st-link", "--listen", "here"], "--listen here"),
        (["board.virtual", "--board", "stm32f746", "--serial", "two words"], "is not a serial number"),
        ([*_SERVE, "stm32f746", "--transport", "pigeon"], "stm32f746 has no transport 'pigeon'"),
        ([*_SERVE, "stm32f746", "--transport", "stdio"], "it has: console, rtt, semihosting"),
        ([*_SERVE, "host", "--transport", "rtt"], "host has no transport 'rtt'\n  hint: it has: stdio, tcp"),
    ],
)
def test_wrong_usage_is_one_message_and_exit_code_2(words: list[object], said: str) -> None:
    done = inv(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", [["init", "--help"], ["init", "-h"], ["--log-level", "info", "init", "-h"], ["init", "demo", "--help"]]
)
def test_help_is_help_wherever_it_stands(words: list[str], tmp_path: Path) -> None:
    done = inv(*words, cwd=tmp_path)
    assert done.returncode == 0
    assert "Create a small project" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_physical_board_that_is_not_there_is_infrastructure() -> None:
    done = inv("hil", "--board", "stm32f746", "--serial", "NO-SUCH-SERIAL")
    assert done.returncode == 3
    assert "there is no probe NO-SUCH-SERIAL" in done.stderr


@pytest.mark.parametrize(
    ("comes", "said"),
    [
        # While Invoke reads the command line: it would call that a failed test.
        ("from invoke.program import Program\nProgram.parse_core = interrupt\n", "interrupted\n"),
        # While a class is made, as modules are imported: Python before 3.12 raises RuntimeError then.
        (
            "class Field:\n    __set_name__ = interrupt\n"
            "boards.names = lambda: type('Record', (), {'field': Field()})\n",
            "interrupted\n",
        ),
        # Where any exception is taken for a model that is no good.
        (
            "def names():\n    try:\n        interrupt()\n    except BaseException:\n"
            "        raise ConfigError('no good') from None\n"
            "boards.names = names\n",
            "interrupted\n",
        ),
    ],
    ids=["before a task begins", "wrapped by Python", "turned into an error"],
)
def test_an_interruption_is_no_verdict_wherever_it_comes(comes: str, said: str) -> None:
    code = (
        "import signal, sys; sys.argv = ['inv', 'board.list']\n"
        "from utvm import boards\nfrom utvm.errors import ConfigError\n"
        f"def interrupt(*_): signal.raise_signal(signal.SIGINT)\n{comes}"
        "from utvm.__main__ import main; main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, said)


def test_late_interrupt_keeps_the_exit_code() -> None:
    code = (
        "import os, signal, sys; sys.argv = ['inv', 'board.list']\n"
        "class Last:\n"
        "    def __del__(self, kill=os.kill, process=os.getpid(), number=signal.SIGINT):\n"
        "        kill(process, number)\n"
        # Python takes this away when it has given its handlers back.
        "sys.last = Last()\n"
        "from utvm.__main__ import main; main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "stm32f746" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["board.virtual", "--board", "stm32f746", "--port", "0"], id="board.virtual"),
        pytest.param([*_SERVE, "host", "--port", "0"], id="board.serve", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_ends_a_command_with_its_own_message(words: list[object]) -> None:
    code = (
        f"import signal, sys; sys.argv = {['inv', *map(str, words)]}\n"
        "write = sys.stdout.write\n"
        "def interrupt(text):\n"
        "    write(text)\n"
        "    if 'Ctrl-C ends it' in text: signal.raise_signal(signal.SIGINT)\n"
        "sys.stdout.write = interrupt\n"
        "from utvm.__main__ import main; main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    # What takes long says how far it is.
    assert (done.returncode, [line for line in done.stderr.splitlines() if "compiling: " not in line]) == (0, [])
    assert "Ctrl-C ends it" in done.stdout


def test_the_log_goes_where_it_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "file"
    before = inv("--log-level", "process=info", "board.list")
    after = inv("board.list", f"--log-file={file}")
    assert re.fullmatch(r".* INFO    utvm\.process: this is process \d+: .*board\.list\n", before.stderr)
    assert (after.stderr, before.stdout) == ("", after.stdout)
    assert "utvm.process: this is process" in file.read_text()


def test_a_log_that_cannot_be_is_wrong_usage(tmp_path: Path) -> None:
    for words, said in (
        (["--log-level=loud"], "error: --log-level: 'loud' is not a level\n  hint: use debug, info, warning, error\n"),
        ([f"--log-file={tmp_path}"], f"error: {tmp_path}: the log cannot be written: Is a directory\n"),
    ):
        done = inv("board.list", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(said)


def test_debug_shows_where_an_error_comes_from() -> None:
    done = inv("--debug", "board.show", "no-such-board")
    assert "Traceback" in done.stderr
    assert done.returncode == 2


def test_an_internal_error_says_where_its_log_is(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['inv', 'board.show', 'host']\n"
        "from utvm import boards\n"
        "def load(name): raise ZeroDivisionError('a fault of ours')\n"
        "boards.load = load\n"
        "from utvm.__main__ import main; main()\n"
    )
    (tmp_path / "utvm.yaml").touch()  # so that this is a project, where logs go
    program = [sys.executable, "-c", code]
    done = subprocess.run(
        program, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    said = re.search(r"^internal error, please report it with its log, (.*)$", done.stderr, re.MULTILINE)
    assert said and Path(said[1]).is_relative_to(tmp_path / "build" / "logs")
    kept = Path(said[1]).read_text()
    assert re.match(rf"utvm {re.escape(utvm.__version__)}: \S+ board.show host\n", kept)
    assert kept.endswith("ZeroDivisionError: a fault of ours\n")
    # Where nothing can be written, that is not one more error.
    shutil.rmtree(tmp_path / "build")
    (tmp_path / "build").touch()
    done = subprocess.run(
        program, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (3, "internal error, please report it")


def test_sizes_are_printed_against_what_the_board_has() -> None:
    done = inv("firmware.size", "--model", DIGITS, "--board", "stm32f746")
    assert done.returncode == 0, done.stderr
    assert "of 1,048,576 bytes" in done.stdout
    assert ".rodata" in done.stdout


def test_ram_layout_is_printed_by_section() -> None:
    done = inv("firmware.size", "--model", DIGITS, "--board", "stm32f746", "--set=in-ram=yes")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^ \.text +itcm +0x0000[0-9a-f]{4}  [\d,]+ *$", done.stdout, re.M)
    assert re.search(r"^ \.stack +dtcm +0x20000000  8,192 *$", done.stdout, re.M)
    assert "flash" not in done.stdout


@pytest.mark.slow
def test_a_model_in_ram_gives_the_same_and_takes_no_flash(tmp_path: Path) -> None:
    told = {}
    for option in ("--json", "--set=in-ram=yes"):
        words = ("model.run", "--model", DIGITS, "--board", "stm32f746", "--virtual", "--json")
        done = inv(*words, tmp_path / option, *([option] if option == "--set=in-ram=yes" else []))
        assert done.returncode == 0, done.stderr
        told[option] = json.loads((tmp_path / option).read_text())
    flashed, loaded = told.values()
    assert loaded["outputs_sha256"] == flashed["outputs_sha256"]
    assert loaded["instructions"] == flashed["instructions"]
    assert (flashed["flash_bytes"] > 0, loaded["flash_bytes"]) == (True, 0)
    # Code and constants are in RAM now, each once; initial values need no second place.
    assert flashed["ram_bytes"] < loaded["ram_bytes"] <= flashed["ram_bytes"] + flashed["flash_bytes"] + 64


@pytest.mark.slow
def test_a_model_of_ones_own_runs_with_no_code_written(tmp_path: Path) -> None:
    given, came, figures = (tmp_path / name for name in ("x.npy", "y.npy", "figures.json"))
    np.save(given, np.full((1, 1, 8, 8), 3.0, dtype=np.float32))
    words = ("model.run", "--model", DIGITS, "--board", "stm32f746", "--virtual", "--input", given)
    done = inv(*words, "--output", came, "--json", figures)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VIRTUAL" in done.stdout
    first = json.loads(figures.read_text())
    assert np.load(came).shape == (1, 10)
    assert set(first) == {"instructions", "flash_bytes", "ram_bytes", "outputs_sha256", "environment"}
    assert inv(*words, "--json", figures).returncode == 0
    assert json.loads(figures.read_text()) == first


def test_an_input_of_the_wrong_shape_is_refused(tmp_path: Path) -> None:
    given = tmp_path / "x.npy"
    np.save(given, np.zeros((8, 8), dtype=np.float32))
    done = inv("model.run", "--model", DIGITS, "--board", "stm32f746", "--virtual", "--input", given)
    assert done.returncode == 2
    assert "float32 [1, 1, 8, 8], not float32 [8, 8]" in done.stderr


@pytest.mark.slow
def test_arrays_of_the_other_byte_order_mean_the_same(tmp_path: Path) -> None:
    digests = set()
    for order in "<>":
        given, figures = tmp_path / f"x{order}.npy", tmp_path / f"{order}.json"
        np.save(given, np.full((1, 1, 8, 8), 3.0, dtype=f"{order}f4"))
        words = ("model.run", "--model", DIGITS, "--board", "stm32f746", "--virtual", "--input", given)
        assert inv(*words, "--json", figures).returncode == 0
        digests.add(json.loads(figures.read_text())["outputs_sha256"])
    assert len(digests) == 1


def test_an_array_that_is_no_input_of_the_model_is_refused(tmp_path: Path) -> None:
    given = tmp_path / "x.npz"
    np.savez(given, image=np.zeros((1, 1, 8, 8), np.float32), y=np.zeros(3, np.float32))
    done = inv("model.run", "--model", DIGITS, "--board", "host", "--input", given)
    assert done.returncode == 2
    assert "its array y is not an input\n  hint: inputs: image" in done.stderr


def test_a_damaged_archive_of_inputs_is_refused(tmp_path: Path) -> None:
    given = tmp_path / "x.npz"
    np.savez(given, image=np.zeros((1, 1, 8, 8), np.float32))
    given.write_bytes(given.read_bytes()[:-40])
    done = inv("model.run", "--model", DIGITS, "--board", "stm32f746", "--virtual", "--input", given)
    assert done.returncode == 2
    assert "is not a .npy or .npz file" in done.stderr
    assert "Traceback" not in done.stderr


def test_unwritable_output_is_refused_before_the_board_works(tmp_path: Path) -> None:
    words = ("model.run", "--model", DIGITS, "--board", "stm32f746", "--virtual")
    done = inv(*words, "--output", tmp_path / "nowhere" / "y.npy")
    assert done.returncode == 2
    assert "its folder does not exist" in done.stderr
    assert "VIRTUAL" not in done.stdout


def test_a_port_in_use_is_said_to_be_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = inv("board.virtual", "--board", "stm32f746", "--port", taken.getsockname()[1])
    assert done.returncode == 3
    assert "Address already in use" in done.stderr
    assert "choose another port" in done.stderr


@pytest.mark.slow
def test_a_model_that_is_too_big_names_section_need_and_room(tmp_path: Path) -> None:
    # The weights alone would fit.
    weights = np.ones((512, 511), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "big",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 511])],
        [numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path / "big.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    done = inv("model.run", "--model", path, "--board", "stm32f746", "--virtual")
    assert done.returncode == 2
    assert "section .rodata does not fit: region flash of stm32f746 has 1048576 bytes" in done.stderr
