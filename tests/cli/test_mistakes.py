# SPDX-License-Identifier: Apache-2.0
"""Random mistakes on the command line: one sentence and a hint, and nothing runs."""

import random
import re

import pytest

from tasks import namespace
from tests.cli.running import inv

_QUICK, _ALL = 12, 500


def _misspell(word: str, chance: random.Random) -> str:
    index = chance.randrange(min(3, len(word) - 1), len(word))
    return chance.choice([word[:index] + word[index + 1 :], word[:index] + "q" + word[index:], word + "x"])


def _draw(seed: int) -> list[str]:
    chance = random.Random(seed)
    contexts = {str(context.name): context for context in namespace.to_contexts()}
    name = chance.choice(sorted(contexts))
    flags = {f: a for f, a in contexts[name].flags.items() if f.startswith("--") and len(f) > 4}
    positional = [argument.name for argument in contexts[name].positional_args]
    files = ["no-such-file"] * len(positional)
    valued = [f for f, a in flags.items() if a.takes_value and not a.optional and a.name not in positional]
    switches = [f for f, a in flags.items() if not a.takes_value]
    mistakes = [
        [_misspell(name, chance)],
        [name, *files, "--" + "".join(chance.sample("abcdefgxyz", 8))],
        [name, *files, chance.choice(["-q", "-?", "--=", "--é=1", "---"])],
    ]
    if flags:
        mistakes.append([name, *files, _misspell(chance.choice(sorted(flags)), chance)])
    if valued:
        mistakes.append([name, *files, chance.choice(valued)])
    if switches:
        mistakes.append([name, *files, f"{chance.choice(switches)}=maybe"])
    if not namespace[name].several:
        mistakes.append([name, *files, chance.choice(["stm32f746", "digits", "a b", "'", "\u202egnp"])])
    return chance.choice(mistakes)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < _QUICK else pytest.mark.nightly) for seed in range(_ALL)]
)
def test_mistake_gives_a_sentence_and_a_hint(seed: int) -> None:
    words = _draw(seed)
    completed = inv(*words, timeout=60)
    assert completed.returncode == 2, (words, completed.stdout, completed.stderr)
    assert re.match(r"error: .+\n  hint: .+\n$", completed.stderr), (words, completed.stderr)
    assert (
        "Traceback" not in completed.stderr
        and "Argument:" not in completed.stderr
        and "No idea" not in completed.stderr
    ), words
