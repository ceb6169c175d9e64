# SPDX-License-Identifier: Apache-2.0
"""The command list, help, short options, and completion in three shells."""

import importlib
import inspect
import io
import json
import os
import pty
import re
import select
import shlex
import subprocess
import time
import typing
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.text import Text

import tasks
from tests.cli.running import inv
from utvm import cli, selection
from utvm.base.text.terminal import Terminal
from utvm.cli import choices
from utvm.cli.choices import SETTINGS, RunChoice
from utvm.cli.program import Inv
from utvm.paths import ROOT

DIGITS = ROOT / "models" / "digits" / "digits_int8.tflite"
_COMMANDS = sorted(tasks.namespace.task_names)


def _parse(*words: str) -> Inv:
    """Return the program after it has parsed a command line."""
    program = Inv(groups=tasks.GROUPS, namespace=tasks.namespace, name="inv", binary="inv")
    program.create_config()
    program.parse_core(["inv", *words])
    program.parse_collection()
    program.parse_tasks()
    return program


@pytest.mark.slow
def test_command_list_fits_80_columns() -> None:
    completed = inv("--list", COLUMNS="80")
    listed = re.findall(r"^  (\S+) ", completed.stdout, re.MULTILINE)
    assert sorted(listed) == _COMMANDS
    assert re.findall(r"^(\S.*):$", completed.stdout, re.MULTILINE) == list(tasks.GROUPS)
    assert max(map(len, completed.stdout.splitlines())) < 80


@pytest.mark.parametrize("name", _COMMANDS)
def test_example_of_each_command_parses(name: str) -> None:
    command = tasks.namespace[name]
    words = shlex.split(command.example)
    assert [context.name for context in _parse(*words).tasks] == [name]
    if command.page:
        assert re.search(rf"\b{re.escape(name)}\b", (ROOT / command.page).read_text(encoding="utf-8"))


def test_help_has_example_and_page_within_80_columns() -> None:
    completed = inv("model.run", "-h", COLUMNS="80")
    assert completed.stdout.startswith("Usage: ./inv model.run MODEL [options]\n")
    assert re.search("^Example: ./inv model.run .*\nMore:    README.md$", completed.stdout, re.MULTILINE)
    assert max(len(line) for line in completed.stdout.splitlines() if not line.startswith("Example:")) < 80
    assert "--prompt-for-sudo-password" not in inv("--help").stdout


def test_short_option_has_one_meaning() -> None:
    meanings = defaultdict(set)
    program = _parse("doctor")
    for context in (program.initial_context, *(program.parser.contexts[name] for name in _COMMANDS)):
        for argument in context.args.values():
            for letter in (option for option in argument.names if len(option) == 1):
                meanings[letter].add(argument.names[0])
    assert {letter: names for letter, names in meanings.items() if len(names) > 1} == {}
    assert meanings["b"] == {"board"}


def test_number_of_options_is_limited() -> None:
    counts = {str(context.name): len(context.args.values()) for context in tasks.namespace.to_contexts()}
    assert {name: count for name, count in counts.items() if count > 15} == {}
    assert sum(counts.values()) <= 300


@pytest.mark.slow
@pytest.mark.parametrize("name", _COMMANDS)
def test_command_has_the_parameters_of_its_function(name: str) -> None:
    command = tasks.namespace[name]
    module, _, function = command.runs.partition(":")
    called = getattr(importlib.import_module(f"utvm.cli.{module}"), function)
    known = inspect.signature(called).parameters
    assert set(_options(name)) == {
        parameter for parameter in known if known[parameter].default is inspect.Parameter.empty
    }
    for option, row in _options(name).items():
        kind = typing.get_origin(known[option].annotation) or known[option].annotation
        record = getattr(choices, row, None) or getattr(selection, row) if isinstance(row, str) else None
        assert issubclass(record or type(row.get("default", "")), kind), option


def _options(name: str) -> dict[str, Any]:
    namespace, _, command = name.rpartition(".")
    path = Path(cli.__file__).parent / "commands" / f"{namespace or 'root'}.yaml"
    options: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))[command].get("options", {})
    return options


def test_keys_of_set_are_in_the_guide_and_in_help() -> None:
    guide = (ROOT / "docs" / "compiler.md").read_text(encoding="utf-8")
    table = guide.partition("### Settings")[2].partition("\n###")[0]
    assert sorted(re.findall(r"^\| `([\w-]+)` \| .+ \|$", table, re.MULTILINE)) == sorted(SETTINGS)
    help_text = " ".join(inv("model.run", "-h").stdout.split()).replace("- ", "-")
    assert f"keys: {', '.join(RunChoice.keys())} (docs/compiler.md)" in help_text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.run"], "error: model.run needs MODEL\n  hint: ./inv model.run my.tflite"),
        (["hil", "-p"], "error: hil has no option -p\n  hint: ./inv hil --help"),
        (["hil", "--bo"], "error: hil has no option --bo\n  hint: did you mean --board?"),
        (["model.run", "--tar", "a.onnx"], "error: model.run has no option --tar\n  hint: did you mean --tags?"),
        (["modl.run"], "error: there is no command 'modl.run'\n  hint: did you mean model.run?"),
        (["hil", "stm32f746"], "error: hil does not take 'stm32f746'\n  hint: did you mean --board stm32f746?"),
        (["hil", "digits"], "did you mean --suite digits?"),
        (["hil", "--board"], "error: --board needs a value\n  hint: one of host, microbit"),
        (["hil", "--board", "stm32f764"], "hint: did you mean stm32f746? boards: host"),
        (["hil", "--board", "pynq-z1:memroy=ddr"], "hint: did you mean memory? it has: memory"),
        (["hil", "--board", "host", "--suite", "digit"], "hint: did you mean digits? suites: "),
        (["hil", "--board", "host", "--in", "dockr"], "did you mean docker?"),
        (["hil", "--virtual=yes"], "error: --virtual takes no value"),
        (["model.run", "models/digits/digit.onnx", "--board", "host"], "hint: did you mean digits.onnx?"),
        (["model.run", "a.onnx", "b.onnx"], "error: model.run does not take 'b.onnx'"),
        (["model.run", "--wait", "5", "a.onnx"], "name the FILE first, or put = before"),
        (["model.run", "none.onnx", "--board", "host"], "none.onnx"),
        (["hil", "--json"], "hil has no results for --json"),
        (["--print-completion-script", "tcsh"], 'for shell "tcsh" not supported'),
    ],
)
def test_parse_error_is_one_message_with_a_hint(words: list[str], message: str) -> None:
    completed = inv(*words)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["board.list"], "boards"),
        (["board.show", "stm32f746"], "memory"),
        (["board.detect"], "probes"),
        (["cache.prune", "--dry-run"], "kinds"),
        (["doctor"], "findings"),
    ],
)
def test_json_is_printed_alone_or_goes_into_a_file(words: list[str], key: str, tmp_path: Path) -> None:
    printed = inv(*words, "--json")
    assert key in json.loads(printed.stdout)
    if words == ["board.show", "stm32f746"]:
        path = tmp_path / "board.json"
        with_file = inv(*words, "-j", path)
        assert with_file.stdout.startswith("stm32f746  ST Nucleo-F746ZG")
        assert json.loads(path.read_text()) == json.loads(printed.stdout)


def test_text_goes_to_standard_error_beside_json() -> None:
    completed = inv("model.run", DIGITS, "--board", "host", "--json")
    assert json.loads(completed.stdout)["outputs_sha256"]
    assert "output " in completed.stderr


def test_no_color_disables_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    def render() -> str:
        terminal = Terminal(force_terminal=True, color_system="standard", file=io.StringIO())
        terminal.print(Text("word", style="green"))
        return terminal.file.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert render() == "\x1b[32mword\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert render() == "word\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--wait", "5", "--model", "x.onnx", "--board", "host"],
        ["--json", "y.json", "--board", "host", "--model=x.onnx"],
        ["x.onnx", "--wait", "--json"],
        ["--debug", "-j", "y.json", "x.onnx"],
        ["--json", "x.onnx", "--board", "host"],
        ["-j", "x.onnx"],
    ],
)
def test_file_may_follow_an_option_with_optional_value(words: list[str]) -> None:
    (context,) = _parse("model.run", *words).tasks
    assert context.args["model"].value == "x.onnx"


def test_models_behind_json_are_not_overwritten() -> None:
    (context,) = _parse("model.compare", "--json", "x.onnx", "y.onnx", "--boards", "host").tasks
    assert context.args["models"].value == "x.onnx,y.onnx"


@pytest.mark.parametrize("option", ["--log-level", "--log-file", "--board-path"])
def test_common_option_without_its_value_is_wrong_usage(option: str) -> None:
    completed = inv("board.list", option)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert f"error: {option} needs a value" in completed.stderr


def test_closed_pipe_is_no_error() -> None:
    completed = subprocess.run(
        f"{ROOT}/inv --list | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert (completed.stdout, completed.stderr) == ("Quick start:\n", "")
    assert completed.returncode != 1  # the code of a failed test


_COMPLETED = {
    "./inv model.pa": "ckage",
    "./inv model.run --standing": "-alone",
    "./inv --log-l": "evel",
    "./inv model.run CONTRIB": "UTING.md",
    "./inv hil --suite standing": "_alone",
    "./inv hil --board nrf52": "840dk",
    "./inv model.run x.onnx --in doc": "ker",
}

_BASH = r"""
source {script}
for line in {lines}; do
    read -ra COMP_WORDS <<< "$line"; _complete_inv inv "${{COMP_WORDS[-1]}}"
    [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "${{COMP_WORDS[-1]}}"))
    echo "$line -> ${{COMPREPLY[*]}}"
done
"""


@pytest.mark.slow
def test_bash_completes(tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(inv("--print-completion-script", "bash").stdout)
    lines = " ".join(map(shlex.quote, _COMPLETED))
    output = _run("bash", "--norc", "-c", _BASH.format(script=script, lines=lines))
    for line, rest in _COMPLETED.items():
        assert f"{line} -> {line.rpartition(' ')[2]}{rest}\n" in output


@pytest.mark.slow
def test_fish_completes(tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(inv("--print-completion-script", "fish").stdout)
    subset = dict([*_COMPLETED.items()][::2])  # Our part of the script is the same as bash's.
    requests = "; ".join(f"echo (complete -C {shlex.quote(line)})" for line in subset)
    lines = _run("fish", "--no-config", "-c", f"source {script}; {requests}").splitlines()
    for line, (command, rest) in zip(lines, subset.items(), strict=True):
        assert re.match(rf"{re.escape(command.rpartition(' ')[2] + rest)}([\t ]|$)", line)


@pytest.mark.slow
def test_zsh_completes(tmp_path: Path) -> None:
    """zsh completes on a terminal only."""
    script = tmp_path / "completion"
    script.write_text(inv("--print-completion-script", "zsh").stdout)
    master, slave = pty.openpty()
    env = {**os.environ, "HOME": str(tmp_path), "PS1": "> ", "TERM": "dumb"}
    with subprocess.Popen(["zsh", "-f", "-i"], cwd=ROOT, env=env, stdin=slave, stdout=slave, stderr=slave) as zsh:
        os.close(slave)
        try:
            os.write(master, f"source {script}; echo rea''dy\n".encode())
            _wait_for(master, "ready")
            # Invoke's script for zsh completes commands and files, no options.
            for line, rest in _COMPLETED.items():
                if " --" in line:
                    continue
                os.write(master, f"{line}\t".encode())
                _wait_for(master, line.rpartition(" ")[2] + rest)
                os.write(master, b"\x15")
        finally:
            zsh.kill()
            os.close(master)


def _run(*words: str) -> str:
    completed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (completed.returncode, completed.stderr) == (0, "")
    return completed.stdout


def _wait_for(terminal: int, text: str) -> None:
    seen = ""
    deadline = time.monotonic() + 60
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], deadline - time.monotonic())
        assert ready, f"waited for {text!r}, and read {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace")
