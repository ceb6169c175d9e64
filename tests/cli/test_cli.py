# SPDX-License-Identifier: Apache-2.0
"""The command line: output and exit codes."""

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


@pytest.mark.slow
def test_boards_are_listed_and_shown() -> None:
    assert "stm32f746" in inv("board.list").stdout
    output = inv("board.show", "stm32f746").stdout
    for part in ("0x08000000", "1,024 KiB", "sram1", "USART3", "216 MHz"):
        assert part in output


def test_detect_without_a_probe_is_no_error() -> None:
    completed = inv("board.detect")
    assert completed.returncode == 0
    assert completed.stdout


def test_doctor_accepts_this_machine() -> None:
    completed = inv("doctor")
    assert completed.returncode == 0, completed.stdout
    for part in ("openocd", "arm-none-eabi", "apache-tvm", "USB stack"):
        assert part in completed.stdout


def test_doctor_lists_missing_packages(tmp_path: Path) -> None:
    completed = inv("doctor", PATH=str(tmp_path))
    assert completed.returncode == 3
    assert "sudo apt-get install gcc-arm-none-eabi" in completed.stdout


def test_doctor_without_file_handles_is_an_error() -> None:
    # Enough handles for Python and the lists that doctor reads; none for the programs that it calls.
    command = f"ulimit -n 8; exec {sys.executable} -m utvm doctor"
    completed = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout) == (3, "")
    assert "error: Too many open files" in completed.stderr


@pytest.mark.parametrize(
    ("words", "message"),
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
def test_usage_error_is_one_message_and_exit_code_2(words: list[object], message: str) -> None:
    completed = inv(*words)
    assert completed.returncode == 2, completed.stdout + completed.stderr
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.parametrize(
    "words", [["init", "--help"], ["init", "-h"], ["--log-level", "info", "init", "-h"], ["init", "demo", "--help"]]
)
def test_help_works_at_any_position(words: list[str], tmp_path: Path) -> None:
    completed = inv(*words, cwd=tmp_path)
    assert completed.returncode == 0
    assert "Create a small project" in completed.stdout
    assert list(tmp_path.iterdir()) == []


def test_missing_physical_board_is_infrastructure() -> None:
    completed = inv("hil", "--board", "stm32f746", "--serial", "NO-SUCH-SERIAL")
    assert completed.returncode == 3
    assert "there is no probe NO-SUCH-SERIAL" in completed.stderr


@pytest.mark.parametrize(
    ("code_of_interruption", "message"),
    [
        # While Invoke reads the command line: its exit code would be that of a failed test.
        ("from invoke.program import Program\nProgram.parse_core = interrupt\n", "interrupted\n"),
        # While a class is created, during imports: Python before 3.12 raises RuntimeError.
        (
            "class Field:\n    __set_name__ = interrupt\n"
            "boards.names = lambda: type('Record', (), {'field': Field()})\n",
            "interrupted\n",
        ),
        # Where any exception means an invalid model.
        (
            "def names():\n    try:\n        interrupt()\n    except BaseException:\n"
            "        raise ConfigError('no good') from None\n"
            "boards.names = names\n",
            "interrupted\n",
        ),
    ],
    ids=["before a task begins", "wrapped by Python", "turned into an error"],
)
def test_interruption_is_no_verdict_at_any_time(code_of_interruption: str, message: str) -> None:
    code = (
        "import signal, sys; sys.argv = ['inv', 'board.list']\n"
        "from utvm import boards\nfrom utvm.errors import ConfigError\n"
        f"def interrupt(*_): signal.raise_signal(signal.SIGINT)\n{code_of_interruption}"
        "from utvm.__main__ import main; main()\n"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stderr) == (3, message)


@pytest.mark.slow
def test_late_interrupt_keeps_the_exit_code() -> None:
    code = (
        "import os, signal, sys; sys.argv = ['inv', 'board.list']\n"
        "class Last:\n"
        "    def __del__(self, kill=os.kill, process=os.getpid(), number=signal.SIGINT):\n"
        "        kill(process, number)\n"
        # Python deletes this after it has restored the signal handlers.
        "sys.last = Last()\n"
        "from utvm.__main__ import main; main()\n"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert "stm32f746" in completed.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["board.virtual", "--board", "stm32f746", "--port", "0"], id="board.virtual"),
        pytest.param([*_SERVE, "host", "--port", "0"], id="board.serve"),
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
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    # Long work prints its progress.
    assert (completed.returncode, [line for line in completed.stderr.splitlines() if "compiling: " not in line]) == (
        0,
        [],
    )
    assert "Ctrl-C ends it" in completed.stdout


def test_log_options_work_before_and_after_the_command(tmp_path: Path) -> None:
    file = tmp_path / "file"
    before = inv("--log-level", "process=info", "board.list")
    after = inv("board.list", f"--log-file={file}")
    assert re.fullmatch(r".* INFO    utvm\.process: this is process \d+: .*board\.list\n", before.stderr)
    assert (after.stderr, before.stdout) == ("", after.stdout)
    assert "utvm.process: this is process" in file.read_text()


def test_invalid_log_options_are_usage_errors(tmp_path: Path) -> None:
    for words, message in (
        (["--log-level=loud"], "error: --log-level: 'loud' is not a level\n  hint: use debug, info, warning, error\n"),
        ([f"--log-file={tmp_path}"], f"error: {tmp_path}: the log cannot be written: Is a directory\n"),
    ):
        completed = inv("board.list", *words)
        assert (completed.returncode, completed.stdout) == (2, "")
        assert completed.stderr.startswith(message)


def test_debug_prints_a_traceback() -> None:
    completed = inv("--debug", "board.show", "no-such-board")
    assert "Traceback" in completed.stderr
    assert completed.returncode == 2


@pytest.mark.slow
def test_internal_error_names_its_log(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['inv', 'board.show', 'host']\n"
        "from utvm import boards\n"
        "def load(name): raise ZeroDivisionError('a fault of ours')\n"
        "boards.load = load\n"
        "from utvm.__main__ import main; main()\n"
    )
    (tmp_path / "utvm.yaml").touch()  # so that this is a project, where logs go
    program = [sys.executable, "-c", code]
    completed = subprocess.run(
        program, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 3
    match = re.search(r"^internal error, please report it with its log, (.*)$", completed.stderr, re.MULTILINE)
    assert match and Path(match[1]).is_relative_to(tmp_path / "build" / "logs")
    text = Path(match[1]).read_text()
    assert re.match(rf"utvm {re.escape(utvm.__version__)}: \S+ board.show host\n", text)
    assert text.endswith("ZeroDivisionError: a fault of ours\n")
    # If the log cannot be written, no further error is printed.
    shutil.rmtree(tmp_path / "build")
    (tmp_path / "build").touch()
    completed = subprocess.run(
        program, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert (completed.returncode, completed.stderr.splitlines()[-1]) == (3, "internal error, please report it")


def test_sizes_are_printed_with_the_limits_of_the_board() -> None:
    completed = inv("firmware.size", "--model", DIGITS, "--board", "stm32f746")
    assert completed.returncode == 0, completed.stderr
    assert "of 1,048,576 bytes" in completed.stdout
    assert ".rodata" in completed.stdout


@pytest.mark.slow
def test_ram_layout_is_printed_by_section() -> None:
    completed = inv("firmware.size", "--model", DIGITS, "--board", "stm32f746", "--set=in-ram=yes")
    assert completed.returncode == 0, completed.stderr
    assert re.search(r"^ \.text +itcm +0x0000[0-9a-f]{4}  [\d,]+ *$", completed.stdout, re.M)
    assert re.search(r"^ \.stack +dtcm +0x20000000  8,192 *$", completed.stdout, re.M)
    assert "flash" not in completed.stdout


@pytest.mark.slow
def test_model_in_ram_computes_the_same_without_flash(tmp_path: Path) -> None:
    figures = {}
    for option in ("--json", "--set=in-ram=yes"):
        words = ("model.run", "--model", DIGITS, "--board", "stm32f746", "--virtual", "--json")
        completed = inv(*words, tmp_path / option, *([option] if option == "--set=in-ram=yes" else []))
        assert completed.returncode == 0, completed.stderr
        figures[option] = json.loads((tmp_path / option).read_text())
    flashed, loaded = figures.values()
    assert loaded["outputs_sha256"] == flashed["outputs_sha256"]
    assert loaded["instructions"] == flashed["instructions"]
    assert (flashed["flash_bytes"] > 0, loaded["flash_bytes"]) == (True, 0)
    # Code and constants are in RAM, once each; initial values are not stored twice.
    assert flashed["ram_bytes"] < loaded["ram_bytes"] <= flashed["ram_bytes"] + flashed["flash_bytes"] + 64


@pytest.mark.slow
def test_model_file_runs_without_code(tmp_path: Path) -> None:
    input_file, output_file, figures = (tmp_path / name for name in ("x.npy", "y.npy", "figures.json"))
    np.save(input_file, np.full((1, 1, 8, 8), 3.0, dtype=np.float32))
    words = ("model.run", "--model", DIGITS, "--board", "stm32f746", "--virtual", "--input", input_file)
    completed = inv(*words, "--output", output_file, "--json", figures)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "VIRTUAL" in completed.stdout
    first = json.loads(figures.read_text())
    assert np.load(output_file).shape == (1, 10)
    assert set(first) == {"instructions", "flash_bytes", "ram_bytes", "outputs_sha256", "environment"}
    assert inv(*words, "--json", figures).returncode == 0
    assert json.loads(figures.read_text()) == first


def test_input_of_the_wrong_shape_is_refused(tmp_path: Path) -> None:
    input_file = tmp_path / "x.npy"
    np.save(input_file, np.zeros((8, 8), dtype=np.float32))
    completed = inv("model.run", "--model", DIGITS, "--board", "stm32f746", "--virtual", "--input", input_file)
    assert completed.returncode == 2
    assert "float32 [1, 1, 8, 8], not float32 [8, 8]" in completed.stderr


@pytest.mark.slow
def test_byte_order_of_an_array_does_not_matter(tmp_path: Path) -> None:
    digests = set()
    for order in "<>":
        input_file, figures = tmp_path / f"x{order}.npy", tmp_path / f"{order}.json"
        np.save(input_file, np.full((1, 1, 8, 8), 3.0, dtype=f"{order}f4"))
        words = ("model.run", "--model", DIGITS, "--board", "stm32f746", "--virtual", "--input", input_file)
        assert inv(*words, "--json", figures).returncode == 0
        digests.add(json.loads(figures.read_text())["outputs_sha256"])
    assert len(digests) == 1


def test_array_that_is_no_input_is_refused(tmp_path: Path) -> None:
    input_file = tmp_path / "x.npz"
    np.savez(input_file, image=np.zeros((1, 1, 8, 8), np.float32), y=np.zeros(3, np.float32))
    completed = inv("model.run", "--model", DIGITS, "--board", "host", "--input", input_file)
    assert completed.returncode == 2
    assert "its array y is not an input\n  hint: inputs: image" in completed.stderr


def test_damaged_archive_of_inputs_is_refused(tmp_path: Path) -> None:
    input_file = tmp_path / "x.npz"
    np.savez(input_file, image=np.zeros((1, 1, 8, 8), np.float32))
    input_file.write_bytes(input_file.read_bytes()[:-40])
    completed = inv("model.run", "--model", DIGITS, "--board", "stm32f746", "--virtual", "--input", input_file)
    assert completed.returncode == 2
    assert "is not a .npy or .npz file" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_unwritable_output_is_refused_before_the_run(tmp_path: Path) -> None:
    words = ("model.run", "--model", DIGITS, "--board", "stm32f746", "--virtual")
    completed = inv(*words, "--output", tmp_path / "nowhere" / "y.npy")
    assert completed.returncode == 2
    assert "its folder does not exist" in completed.stderr
    assert "VIRTUAL" not in completed.stdout


def test_port_in_use_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        completed = inv("board.virtual", "--board", "stm32f746", "--port", taken.getsockname()[1])
    assert completed.returncode == 3
    assert "Address already in use" in completed.stderr
    assert "choose another port" in completed.stderr


@pytest.mark.slow
def test_error_about_a_large_model_names_section_and_region(tmp_path: Path) -> None:
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
    completed = inv("model.run", "--model", path, "--board", "stm32f746", "--virtual")
    assert completed.returncode == 2
    assert "section .rodata does not fit: region flash of stm32f746 has 1048576 bytes" in completed.stderr
