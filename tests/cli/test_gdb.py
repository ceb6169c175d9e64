# SPDX-License-Identifier: Apache-2.0
"""``board.gdb``: what a debugger of Debian's sees of a model's firmware, and how VS Code would start it."""

import json
import re
import shlex
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import inv
from tests.portions import by_day
from utvm.base.process.run import free_port
from utvm.paths import ROOT

MODEL = ("--model", ROOT / "models" / "digits" / "digits_int8.tflite")
EMULATED = ("--board", "mps2-an500")


def _commands(*commands: str) -> list[str]:
    return [word for each in commands for word in ("--command", each)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "board", [pytest.param(name, marks=pytest.mark.nightly) for name in ("stm32f746", "pynq-z1")] + ["riscv-spike"]
)
def test_the_sources_of_a_model_s_firmware_are_found(board: str) -> None:
    shown = ("info line", "break utvm_run", "continue", "backtrace", "list utvm_run", "list digits_int8.c:1,2")
    done = inv("board.gdb", *MODEL, "--board", board, "--virtual", *_commands(*shown))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^#0  utvm_run \(program=.*0\) at /utvm/utvm/runtime/run\.c:\d+$", done.stdout, re.MULTILINE)
    written = (ROOT / "utvm" / "runtime" / "run.c").read_text().splitlines()
    number = next(number for number, text in enumerate(written, 1) if re.match(r"\w+ utvm_run\(", text))
    assert f"{number}\t{written[number - 1]}\n" in done.stdout
    # What was generated for the image is kept beside it.
    assert '2\t#include "digits_int8.h"\n' in done.stdout
    assert "No such file" not in done.stdout + done.stderr  # the first instruction is an assembler's


@pytest.mark.slow
def test_the_sources_of_an_image_that_was_written_are_found(tmp_path: Path) -> None:
    built = inv("firmware.build", MODEL[1], *EMULATED, "--output", elf := tmp_path / "fw.elf")
    assert built.returncode == 0, built.stderr
    shown = _commands("break digits_int8_run", "continue", "list")
    done = inv("board.gdb", "--elf", elf, *EMULATED, "--virtual", *shown)
    assert done.returncode == 0, done.stderr
    assert "static inline void utvm_step(uint32_t number)" in done.stdout


def _launched(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / ".vscode" / "launch.json").read_text())
    assert content["version"] == "0.2.0"
    return {each["name"]: each for each in content["configurations"]}


@pytest.mark.slow
def test_vs_code_files_start_the_board_and_find_sources(tmp_path: Path) -> None:
    launch = tmp_path / ".vscode" / "launch.json"
    launch.parent.mkdir()
    launch.write_text('{"version": "0.2.0", "configurations": [{"name": "mine"}]}')
    port = free_port()
    for _ in range(2):  # once more does not write it twice
        done = inv("board.gdb", *MODEL, *EMULATED, "--port", port, "--vscode", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    mine, ours = _launched(tmp_path).values()
    assert mine == {"name": "mine"}
    # As the extension does it: the server until it says so, then the debugger, commands, connection.
    server = [ours["debugServerPath"], *shlex.split(ours["debugServerArgs"])]
    with subprocess.Popen(server, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert any(re.search(ours["serverStarted"], line) for line in process.stdout)
            script = [each["text"] for each in ours["setupCommands"]]
            script += [f"target extended-remote {ours['miDebuggerServerAddress']}", "break utvm_run", "continue"]
            words = [word for each in [*script, "backtrace 1"] for word in ("-ex", each)]
            command = [ours["miDebuggerPath"], "--nx", "--batch", *words, ours["program"]]
            said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
        finally:
            process.send_signal(signal.SIGINT)
            process.stdout.close()
            code = process.wait(60)
    assert re.search(r"^#0  utvm_run .* at .*/runtime/run\.c:\d+$", said, re.MULTILINE)
    assert code == 0


def test_a_launch_file_with_comments_is_left_alone(tmp_path: Path) -> None:
    launch = tmp_path / ".vscode" / "launch.json"
    launch.parent.mkdir()
    launch.write_text(text := "// mine\n{}\n")
    done = inv("board.gdb", *MODEL, *EMULATED, "--vscode", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot add to" in done.stderr
    assert launch.read_text() == text


def test_debugger_refusal_has_the_usage_exit_code() -> None:
    done = inv("board.gdb", *MODEL, *EMULATED, *_commands("print nonsense", "echo too-far"))
    assert done.returncode == 2
    assert 'No symbol "nonsense" in current context' in done.stderr
    assert "too-far" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", by_day(["break", "tbreak", "hbreak"], "break"))
def test_function_that_is_not_there_ends_it(command: str) -> None:
    done = inv("board.gdb", *MODEL, *EMULATED, *_commands(f"{command} nosuchfn", "continue"))
    assert done.returncode == 2
    assert 'Function "nosuchfn" not defined.' in done.stderr


@pytest.mark.parametrize("words", [(), (*MODEL, "--elf", "x.elf")])
def test_something_is_debugged_and_one_thing(words: tuple[object, ...]) -> None:
    done = inv("board.gdb", *words, *EMULATED)
    assert done.returncode == 2
    assert "give --elf FILE, or --model FILE" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2-an500", "stm32f746", "pynq-z1"])
def test_a_port_that_is_taken_is_named(board: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = inv("board.gdb", *MODEL, "--board", board, "--virtual", "--port", port)
    assert done.returncode == 3
    assert str(port) in done.stderr
