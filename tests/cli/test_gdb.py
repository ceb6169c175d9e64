# SPDX-License-Identifier: Apache-2.0
"""``board.gdb``: Debian's debugger on a model's firmware, and files for VS Code."""

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
from utvm.base.process import free_port
from utvm.paths import ROOT

MODEL = ("--model", ROOT / "models" / "digits" / "digits_int8.tflite")
EMULATED = ("--board", "mps2-an500")


def _commands(*commands: str) -> list[str]:
    return [word for command in commands for word in ("--command", command)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "board", [pytest.param(name, marks=pytest.mark.nightly) for name in ("stm32f746", "pynq-z1")] + ["riscv-spike"]
)
def test_sources_of_a_model_are_found(board: str) -> None:
    commands = ("info line", "break utvm_run", "continue", "backtrace", "list utvm_run", "list digits_int8.c:1,2")
    completed = inv("board.gdb", *MODEL, "--board", board, "--virtual", *_commands(*commands))
    assert completed.returncode == 0, completed.stderr
    assert re.search(r"^#0  utvm_run \(program=.*0\) at /utvm/utvm/runtime/run\.c:\d+$", completed.stdout, re.MULTILINE)
    lines = (ROOT / "utvm" / "runtime" / "run.c").read_text().splitlines()
    number = next(number for number, text in enumerate(lines, 1) if re.match(r"\w+ utvm_run\(", text))
    assert f"{number}\t{lines[number - 1]}\n" in completed.stdout
    # Generated sources are beside the image.
    assert '2\t#include "digits_int8.h"\n' in completed.stdout
    assert (
        "No such file" not in completed.stdout + completed.stderr
    )  # the first instruction is from an assembler source


@pytest.mark.slow
def test_sources_of_an_elf_file_are_found_elsewhere(tmp_path: Path) -> None:
    built = inv("firmware.build", MODEL[1], *EMULATED, "--output", elf := tmp_path / "fw.elf")
    assert built.returncode == 0, built.stderr
    (moved := tmp_path / "moved").mkdir()
    for path in (elf, tmp_path / "fw-sources"):
        path.rename(moved / path.name)
    places = ("list digits_int8.c:1,2", "list *utvm_reset", "list run.c:1,1", "break digits_int8_run", "continue")
    completed = inv("board.gdb", "--elf", moved / "fw.elf", *EMULATED, "--virtual", *_commands(*places))
    assert completed.returncode == 0, completed.stderr
    # Any GDB, of a user who has neither this checkout nor its cache.
    words = [word for place in (f"directory {moved}/fw-sources", *places[:-1]) for word in ("-ex", place)]
    command = ["gdb-multiarch", "--nx", "--batch", *words, str(moved / "fw.elf")]
    alone = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    for output in (completed.stdout, alone.stdout):
        assert '2\t#include "digits_int8.h"\n' in output
        assert "utvm_reset:" in output and "1\t/* SPDX-License-Identifier: Apache-2.0 */\n" in output
    assert "No such file" not in completed.stderr + alone.stderr
    (moved / "fw-sources").rename(tmp_path / "gone")
    missing = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert "digits_int8.c: No such file" in missing.stderr


def _launch_configurations(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / ".vscode" / "launch.json").read_text())
    assert content["version"] == "0.2.0"
    return {configuration["name"]: configuration for configuration in content["configurations"]}


@pytest.mark.slow
def test_vs_code_files_start_the_board_and_find_sources(tmp_path: Path) -> None:
    launch = tmp_path / ".vscode" / "launch.json"
    launch.parent.mkdir()
    launch.write_text('{"version": "0.2.0", "configurations": [{"name": "mine"}]}')
    port = free_port()
    for _ in range(2):  # a second call adds nothing
        completed = inv("board.gdb", *MODEL, *EMULATED, "--port", port, "--vscode", cwd=tmp_path)
        assert completed.returncode == 0, completed.stderr
    existing, added = _launch_configurations(tmp_path).values()
    assert existing == {"name": "mine"}
    # As the extension does: the server until its message, then the debugger, commands and connection.
    server = [added["debugServerPath"], *shlex.split(added["debugServerArgs"])]
    with subprocess.Popen(server, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert any(re.search(added["serverStarted"], line) for line in process.stdout)
            script = [setup["text"] for setup in added["setupCommands"]]
            script += [f"target extended-remote {added['miDebuggerServerAddress']}", "break utvm_run", "continue"]
            words = [word for line in [*script, "backtrace 1"] for word in ("-ex", line)]
            command = [added["miDebuggerPath"], "--nx", "--batch", *words, added["program"]]
            output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
        finally:
            process.send_signal(signal.SIGINT)
            process.stdout.close()
            code = process.wait(60)
    assert re.search(r"^#0  utvm_run .* at .*/runtime/run\.c:\d+$", output, re.MULTILINE)
    assert code == 0


def test_launch_file_with_comments_is_left_alone(tmp_path: Path) -> None:
    launch = tmp_path / ".vscode" / "launch.json"
    launch.parent.mkdir()
    launch.write_text(text := "// mine\n{}\n")
    completed = inv("board.gdb", *MODEL, *EMULATED, "--vscode", cwd=tmp_path)
    assert completed.returncode == 2
    assert "cannot add to" in completed.stderr
    assert launch.read_text() == text


@pytest.mark.slow
def test_failed_debugger_command_is_a_usage_error() -> None:
    completed = inv("board.gdb", *MODEL, *EMULATED, *_commands("print nonsense", "echo too-far"))
    assert completed.returncode == 2
    assert 'No symbol "nonsense" in current context' in completed.stderr
    assert "too-far" not in completed.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", by_day(["break", "tbreak", "hbreak"], "break"))
def test_unknown_function_ends_the_debugger(command: str) -> None:
    completed = inv("board.gdb", *MODEL, *EMULATED, *_commands(f"{command} nosuchfn", "continue"))
    assert completed.returncode == 2
    assert 'Function "nosuchfn" not defined.' in completed.stderr


@pytest.mark.parametrize("words", [(), (*MODEL, "--elf", "x.elf")])
def test_either_elf_or_model_is_needed(words: tuple[object, ...]) -> None:
    completed = inv("board.gdb", *words, *EMULATED)
    assert completed.returncode == 2
    assert "give --elf FILE, or --model FILE" in completed.stderr


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2-an500", "stm32f746", "pynq-z1"])
def test_port_in_use_is_named(board: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        completed = inv("board.gdb", *MODEL, "--board", board, "--virtual", "--port", port)
    assert completed.returncode == 3
    assert str(port) in completed.stderr
