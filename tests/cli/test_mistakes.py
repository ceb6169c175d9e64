# SPDX-License-Identifier: Apache-2.0
"""Mistakes on the command line, drawn at random: one sentence and a hint each, with nothing run."""

import contextlib
import io
import random
import re
from pathlib import Path

import pytest

from tasks import GROUPS, namespace
from utvm import boards
from utvm.cli.program import Inv
from utvm.paths import ROOT

_QUICK, _ALL = 40, 500
_CONTEXTS = {str(context.name): context for context in namespace.to_contexts()}
_MODEL = str(ROOT / "models" / "digits" / "digits_int8.tflite")
# These commands first report a missing option.
_BOARD_FIRST = ("hil", "board.check", "board.reset", "board.monitor", "model.run", "model.eval", "model.profile")


def _misspell(word: str, chance: random.Random) -> str:
    place = chance.randrange(min(3, len(word) - 1), len(word))
    return chance.choice([word[:place] + word[place + 1 :], word[:place] + "q" + word[place:], word + "x"])


def _draw(seed: int) -> list[str]:
    chance = random.Random(seed)
    name = chance.choice(sorted(_CONTEXTS))
    flags = {f: a for f, a in _CONTEXTS[name].flags.items() if f.startswith("--") and len(f) > 4}
    positional = [argument.name for argument in _CONTEXTS[name].positional_args]
    files = ["no-such-file"] * len(positional)
    valued = [f for f, a in flags.items() if a.takes_value and not a.optional and a.name not in positional]
    switches = [f for f, a in flags.items() if not a.takes_value]
    numbers = [f for f, a in flags.items() if a.kind in (int, float)]
    mistakes = [
        [_misspell(name, chance)],
        [name.rpartition(".")[2] + "s"],
        [name, *files, "--" + "".join(chance.sample("abcdefgxyz", 8))],
        [name, *files, chance.choice(["-q", "-?", "--=", "--é=1", "---"])],
    ]
    if flags:
        mistakes.append([name, *files, _misspell(chance.choice(sorted(flags)), chance)])
    if valued:
        mistakes.append([name, *files, chance.choice(valued)])
    if switches:
        mistakes.append([name, *files, f"{chance.choice(switches)}=maybe"])
    if numbers:
        mistakes.append([name, *files, chance.choice(numbers), chance.choice(["many", "1,5", "0x10", "5s"])])
    if not namespace[name].several:
        mistakes.append([name, *files, chance.choice(["stm32f746", "digits", "a b", "'", "\u202egnp"])])
    if name in _BOARD_FIRST:
        models = [_MODEL] * len(positional)
        board = _misspell(chance.choice(boards.names()), chance)
        mistakes += [[name, *models, "--board", board], [name, *models, "--board", "host", "--wait=soon"]]
        if models:
            mistakes.append([name, chance.choice(boards.names())])
            mistakes.append([name, _MODEL, "--board", "host", "--set", _misspell("optimize", chance) + "=speed"])
            mistakes.append([name, _misspell(_MODEL, chance), "--board", "host"])
    return chance.choice(mistakes)


def _run(words: list[str]) -> tuple[object, str]:
    """Run a command in this process; return its exit code, and its text: errors, or help."""
    program = Inv(groups=GROUPS, namespace=namespace, version="0", name="inv", binary="inv", binary_names=["inv"])
    with contextlib.redirect_stderr(io.StringIO()) as stderr, contextlib.redirect_stdout(io.StringIO()) as stdout:
        try:
            program.run(["inv", *words])
            code: object = 0
        except SystemExit as end:
            code = end.code
    return code, stderr.getvalue() or stdout.getvalue()


def _check(seeds: range) -> None:
    for seed in seeds:
        words = _draw(seed)
        code, text = _run(words)
        assert code == 2 and re.fullmatch(r"error: .+\n  hint: .+\n", text), (words, code, text)
        for foreign in ("Traceback", "Argument:", "No idea", "literal", "convert"):
            assert foreign not in text, (words, text)


def test_mistake_gives_a_sentence_and_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _check(range(_QUICK))


@pytest.mark.nightly
def test_every_of_500_mistakes_gives_a_sentence_and_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _check(range(_QUICK, _ALL))


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("hil --bo", "did you mean --board? ./inv hil --help"),
        ("hil stm32f764", "did you mean --board stm32f746?"),
        ("hil digts", "did you mean --suite digits?"),
        ("hil --board stm32f764", "did you mean stm32f746? boards: "),
        ("hil --reruns abc", "./inv hil --help"),
        ("stm32f407", "did you mean ./inv hil --board stm32f407?"),
        ("my.onnx", "did you mean ./inv model.run my.onnx?"),
        ("flash", "did you mean firmware.flash?"),
        ("model.run host", "did you mean --board host?"),
        ("model.eval digts --board host", "did you mean digits? name a model file"),
        ("model.package models/digits/digits.onx", "did you mean digits.onnx? "),
        ("model.run models/digits/digits.onnx --board host --set tunned=x", "did you mean tuned? "),
        ("project.create --board stm32f746 --platform zepher", "did you mean zephyr? "),
        ("model.eval digits --board host --reference onx", "did you mean onnx? "),
    ],
)
def test_mistake_gives_the_nearest_name(words: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, text = _run(words.split())
    assert code == 2 and f"\n  hint: {hint}" in text, text


def test_help_begins_with_common_commands() -> None:
    listed = _run(["-h"])[1]
    assert listed.index("Quick start:") < listed.index("  hil ") < listed.index("--board-path")
    options = re.findall(r"^  (?:-\w \S+, )?--([\w-]+)", _run(["model.run", "-h"])[1], re.MULTILINE)
    assert options[:4] == ["model", "input", "set", "run-python"] and options.index("board") < options.index("virtual")
    assert "--seconds=NUMBER" in _run(["board.monitor", "-h"])[1]
