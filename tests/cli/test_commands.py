# SPDX-License-Identifier: Apache-2.0
"""The command line as somebody new meets it: the list, the help, the letters, and completion in three shells."""

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
from collections import defaultdict
from pathlib import Path

import pytest
from rich.text import Text

import tasks
from tests.cli.running import inv
from utvm.base.text.terminal import Terminal
from utvm.cli.choices import SETTINGS, RunChoice
from utvm.cli.program import Inv
from utvm.paths import ROOT

DIGITS = ROOT / "models" / "digits" / "digits_int8.tflite"
_COMMANDS = sorted(tasks.namespace.task_names)


def _read(*words: str) -> Inv:
    """Return the program with a command line that it has understood."""
    program = Inv(groups=tasks.GROUPS, namespace=tasks.namespace, name="inv", binary="inv")
    program.create_config()
    program.parse_core(["inv", *words])
    program.parse_collection()
    program.parse_tasks()
    return program


def test_command_list_fits_80_columns() -> None:
    done = inv("--list", COLUMNS="80")
    listed = re.findall(r"^  (\S+) ", done.stdout, re.MULTILINE)
    assert sorted(listed) == _COMMANDS
    assert re.findall(r"^(\S.*):$", done.stdout, re.MULTILINE) == list(tasks.GROUPS)
    assert max(map(len, done.stdout.splitlines())) < 80


@pytest.mark.parametrize("name", _COMMANDS)
def test_example_of_each_command_parses(name: str) -> None:
    command = tasks.namespace[name]
    words = shlex.split(command.example)
    assert [context.name for context in _read(*words).tasks] == [name]
    assert re.search(rf"\b{re.escape(name)}\b", (ROOT / command.page).read_text(encoding="utf-8"))


def test_help_has_the_example_and_the_page_within_80_columns() -> None:
    done = inv("model.run", "-h", COLUMNS="80")
    assert done.stdout.startswith("Usage: ./inv model.run MODEL [options]\n")
    assert re.search("^Example: ./inv model.run .*\nMore:    README.md$", done.stdout, re.MULTILINE)
    assert max(len(line) for line in done.stdout.splitlines() if not line.startswith("Example:")) < 80
    assert "--prompt-for-sudo-password" not in inv("--help").stdout


def test_a_letter_means_the_same_in_every_command() -> None:
    meanings = defaultdict(set)
    program = _read("doctor")
    for context in (program.initial_context, *(program.parser.contexts[name] for name in _COMMANDS)):
        for argument in context.args.values():
            for letter in (each for each in argument.names if len(each) == 1):
                meanings[letter].add(argument.names[0])
    assert {letter: names for letter, names in meanings.items() if len(names) > 1} == {}
    assert meanings["b"] == {"board"}


def test_no_command_has_more_than_15_options_and_all_together_300() -> None:
    counts = {str(context.name): len(context.args.values()) for context in tasks.namespace.to_contexts()}
    assert {name: count for name, count in counts.items() if count > 15} == {}
    assert sum(counts.values()) <= 300


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in _COMMANDS if tasks.namespace[name].runs])
def test_a_command_has_the_parameters_of_its_function(name: str) -> None:
    command = tasks.namespace[name]
    module, _, function = command.runs.partition(":")
    runs = getattr(importlib.import_module(f"utvm.cli.{module}"), function)
    _, *parameters = inspect.signature(inspect.unwrap(command.body)).parameters
    taken = inspect.signature(runs).parameters
    assert set(parameters) == {known for known in taken if taken[known].default is inspect.Parameter.empty}


def test_the_keys_of_set_are_in_the_guide_and_in_help() -> None:
    guide = (ROOT / "docs" / "compiler.md").read_text(encoding="utf-8")
    for key, text in SETTINGS.items():
        assert f"| `{key}` | {text} |" in guide
    help_text = " ".join(inv("model.run", "-h").stdout.split()).replace("- ", "-")
    assert f"keys: {', '.join(RunChoice.keys())} (docs/compiler.md)" in help_text


@pytest.mark.parametrize(
    ("words", "said"),
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
def test_what_is_not_understood_is_one_message_and_a_hint(words: list[str], said: str) -> None:
    done = inv(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["board.list"], "boards"),
        (["board.show", "stm32f746"], "memory"),
        (["board.detect"], "probes"),
        (["cache.size"], "kinds"),
        (["doctor"], "findings"),
    ],
)
def test_json_is_all_that_is_printed_or_goes_into_a_file(words: list[str], key: str, tmp_path: Path) -> None:
    printed = inv(*words, "--json")
    assert key in json.loads(printed.stdout)
    if words == ["board.show", "stm32f746"]:
        path = tmp_path / "board.json"
        told = inv(*words, "-j", path)
        assert told.stdout.startswith("stm32f746  ST Nucleo-F746ZG")
        assert json.loads(path.read_text()) == json.loads(printed.stdout)


def test_where_json_is_printed_words_go_to_standard_error() -> None:
    done = inv("model.run", DIGITS, "--board", "host", "--json")
    assert json.loads(done.stdout)["outputs_sha256"]
    assert "output " in done.stderr


def test_no_color_means_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def written() -> str:
        terminal = Terminal(force_terminal=True, color_system="standard", file=io.StringIO())
        terminal.print(Text("word", style="green"))
        return terminal.file.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert written() == "\x1b[32mword\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert written() == "word\n"


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
    (context,) = _read("model.run", *words).tasks
    assert context.args["model"].value == "x.onnx"


def test_models_behind_json_are_not_overwritten() -> None:
    (context,) = _read("model.compare", "--json", "x.onnx", "y.onnx", "--boards", "host").tasks
    assert context.args["models"].value == "x.onnx,y.onnx"


@pytest.mark.parametrize("option", ["--log-level", "--log-file", "--board-path"])
def test_common_option_without_its_value_is_wrong_usage(option: str) -> None:
    done = inv("board.list", option)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: {option} needs a value" in done.stderr


def test_a_reader_that_has_read_enough_is_no_error() -> None:
    done = subprocess.run(
        f"{ROOT}/inv --list | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert (done.stdout, done.stderr) == ("Quick start:\n", "")
    assert done.returncode != 1  # which says that a test failed


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
    said = _run("bash", "--norc", "-c", _BASH.format(script=script, lines=lines))
    for line, rest in _COMPLETED.items():
        assert f"{line} -> {line.rpartition(' ')[2]}{rest}\n" in said


@pytest.mark.slow
def test_fish_completes(tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(inv("--print-completion-script", "fish").stdout)
    some = dict([*_COMPLETED.items()][::2])  # Our part of the script is the one that bash has.
    asked = "; ".join(f"echo (complete -C {shlex.quote(line)})" for line in some)
    said = _run("fish", "--no-config", "-c", f"source {script}; {asked}").splitlines()
    for line, (command, rest) in zip(said, some.items(), strict=True):
        assert re.match(rf"{re.escape(command.rpartition(' ')[2] + rest)}([\t ]|$)", line)


@pytest.mark.slow
def test_zsh_completes(tmp_path: Path) -> None:
    """On a terminal, as it completes nowhere else."""
    script = tmp_path / "completion"
    script.write_text(inv("--print-completion-script", "zsh").stdout)
    ours, theirs = pty.openpty()
    env = {**os.environ, "HOME": str(tmp_path), "PS1": "> ", "TERM": "dumb"}
    with subprocess.Popen(["zsh", "-f", "-i"], cwd=ROOT, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as zsh:
        os.close(theirs)
        try:
            os.write(ours, f"source {script}; echo rea''dy\n".encode())
            _wait_for(ours, "ready")
            # Invoke's script for zsh completes commands and files, no options.
            for line, rest in _COMPLETED.items():
                if " --" in line:
                    continue
                os.write(ours, f"{line}\t".encode())
                _wait_for(ours, line.rpartition(" ")[2] + rest)
                os.write(ours, b"\x15")
        finally:
            zsh.kill()
            os.close(ours)


def _run(*words: str) -> str:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def _wait_for(terminal: int, text: str) -> None:
    seen = ""
    deadline = time.monotonic() + 60
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], deadline - time.monotonic())
        assert ready, f"waited for {text!r}, and read {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace")
