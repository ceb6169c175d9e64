# SPDX-License-Identifier: Apache-2.0
"""The graph executor equals the ahead-of-time executor, and survives damaged descriptions."""

import json
import random
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from host_library import FLAGS, HostLibrary, write_sources

from hil_tests.operator_cases import OPERATOR_CASES
from utvm.base.process import run_tool
from utvm.compiler import Library, Memory, Region, compile_model, load
from utvm.errors import ConfigError

DIGITS = Path(__file__).parents[2] / "models" / "digits" / "digits.onnx"
_CASES = {case.name: case for case in OPERATOR_CASES}


@pytest.fixture(scope="module")
def digits() -> Library:
    return compile_model(load(DIGITS), executor="graph")


@pytest.mark.slow
def test_executors_give_equal_bits(digits: Library, tmp_path: Path) -> None:
    ahead = HostLibrary(compile_model(load(DIGITS), name="ahead"), tmp_path)
    graph = HostLibrary(digits, tmp_path)
    for seed in range(5):
        image = np.random.default_rng(seed).random((1, 1, 8, 8), np.float32)
        assert graph(image)[0].tobytes() == ahead(image)[0].tobytes()


@pytest.mark.parametrize("name", sorted(_CASES)[:: len(_CASES) // 4])
def test_operators_equal_numpy(name: str, tmp_path: Path) -> None:
    case = _CASES[name]
    library = compile_model(case.model(), name="m", executor="graph")
    case.check(HostLibrary(library, tmp_path)(*case.inputs))


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_several_regions_give_equal_results(executor: str, tmp_path: Path) -> None:
    memory = Memory((Region("fast", 5000), Region("slow")), {"image": "slow"})
    library = compile_model(load(DIGITS), name="two", memory=memory, executor=executor)  # type: ignore[arg-type]
    assert [arena.region for arena in library.arenas] == ["fast", "slow"]
    assert all(arena.size_bytes for arena in library.arenas)
    assert library.input_places[0].region == "slow"
    for arena in library.arenas:
        assert f"#define TWO_{arena.region.upper()}_BYTES {arena.size_bytes}\n" in library.sources["two.h"]
    image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    (expected,) = HostLibrary(compile_model(load(DIGITS), name="one"), tmp_path)(image)
    (output,) = HostLibrary(library, tmp_path)(image)
    assert output.tobytes() == expected.tobytes()


def test_text_equals_the_binary_description(digits: Library) -> None:
    text = json.loads(digits.sources["digits_graph.json"])
    content = _description(digits)
    assert struct.unpack_from("<4sHH", content) == (b"UGR1", len(text["tensors"]), len(text["steps"]))
    for number, tensor in enumerate(text["tensors"]):
        _, _, offset, size = struct.unpack_from("<HHII", content, 8 + 12 * number)
        assert (offset, size) == (tensor["offset"], tensor["bytes"])
    position = 8 + 12 * len(text["tensors"])
    for step in text["steps"]:
        _, count = struct.unpack_from("<HH", content, position)
        assert list(struct.unpack_from(f"<{count}H", content, position + 4)) == step["tensors"]
        position += 4 + 2 * count
    assert position == len(content)


def test_unknown_executor_is_refused() -> None:
    with pytest.raises(ConfigError, match="no executor 'vm'"):
        compile_model(load(DIGITS), executor="vm")  # type: ignore[arg-type]


def _description(library: Library) -> bytes:
    match = re.search(r"description\[\d+\] = \{([^}]*)\}", library.sources[f"{library.name}.c"])
    assert match
    return bytes(int(number) for number in re.findall(r"\d+", match[1]))


class Breakable:
    """A library with a replaceable description; an invalid memory access ends the process."""

    def __init__(self, library: Library, directory: Path) -> None:
        self.good = _description(library)
        source = library.sources[f"{library.name}.c"]
        source = re.sub(r"static const uint8_t description\[\d+\] = \{[^}]*\};", "", source)
        source = source.replace("static const digits_graph_t graph = {\n", "digits_graph_t graph = {\n")
        source = source.replace("        description,\n        sizeof description,\n", "        given, given_bytes,\n")
        source = source.replace(
            "int32_t digits_run(", "const uint8_t *given;\nuint32_t given_bytes;\nint32_t digits_run("
        )
        texts = {**library.sources, "digits.c": source, "play.c": _PLAY}
        files = write_sources(Library(**{**library.__dict__, "sources": texts}), directory)
        checks = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        self._program = directory / "play"
        run_tool(["gcc", *FLAGS, *checks, "-o", self._program, *files, "-lm"])

    def run(self, descriptions: list[bytes]) -> list[int]:
        """Run each description once, in memory of exactly its size; return the codes."""
        stream = b"".join(struct.pack("<I", len(description)) + description for description in descriptions)
        (self._program.parent / "stream").write_bytes(stream)
        output = run_tool([self._program, self._program.parent / "stream"])
        return [int(line) for line in output.split()]


# Input, output, working memory and description are separate allocations of exactly their size.
_PLAY = """
#include <stdio.h>
#include <stdlib.h>
#include "digits.h"
extern const uint8_t *given;
extern uint32_t given_bytes;
int main(int count, char **words)
{
    FILE *stream = fopen(words[count - 1], "rb");
    while (fread(&given_bytes, 4, 1, stream) == 1) {
        uint8_t *description = malloc(given_bytes + (given_bytes == 0));
        void *input = calloc(256, 1);
        void *output = calloc(40, 1);
        uint8_t *arena = calloc(DIGITS_ARENA_BYTES, 1);
        const void *inputs[1];
        void *outputs[1];
        inputs[0] = input;
        outputs[0] = output;
        if (fread(description, 1, given_bytes, stream) != given_bytes) { return 1; }
        given = description;
        printf("%d\\n", (int)digits_run(inputs, outputs, arena));
        free(description);
        free(input);
        free(output);
        free(arena);
    }
    fclose(stream);
    return 0;
}
"""


@pytest.fixture(scope="module")
def breakable(digits: Library, tmp_path_factory: pytest.TempPathFactory) -> Breakable:
    return Breakable(digits, tmp_path_factory.mktemp("breakable"))


def test_damage_of_each_kind_has_its_code(breakable: Breakable) -> None:
    good = breakable.good
    tensor, step = 8, good.index(struct.pack("<HH", 0, 5), 8 + 12 * struct.unpack_from("<H", good, 4)[0])

    def changed(position: int, layout: str, value: int) -> bytes:
        damaged = bytearray(good)
        struct.pack_into(layout, damaged, position, value)
        return bytes(damaged)

    cases = [
        (good, 0),
        (b"", -1),
        (b"XGR1" + good[4:], -1),
        (good[:40], -2),
        (good[:-1], -2),
        (good + b"\0", -2),
        (changed(tensor, "<H", 4), -3),  # unknown kind
        (changed(tensor + 2, "<H", 1), -3),  # unknown input
        (changed(tensor + 4, "<I", 0xFFFFFFFF), -3),  # offset outside
        (changed(tensor + 8, "<I", 257), -3),  # too large
        (changed(tensor + 8, "<I", 255), -5),  # too small for the operator
        (changed(step, "<H", 99), -4),  # unknown operator
        (changed(step + 2, "<H", 4), -4),  # another number of arguments
        (changed(step + 4, "<H", 999), -3),  # unknown tensor
        (changed(step, "<H", 0xFFFF), -4),  # a copy of five tensors
    ]
    assert breakable.run([description for description, _ in cases]) == [code for _, code in cases]


def _damage(good: bytes, generator: random.Random) -> bytes:
    """Change some bytes and truncate, or write random bytes after a valid start."""
    if generator.random() < 0.2:
        return good[:4] + generator.randbytes(generator.randrange(100))
    damaged = bytearray(good)
    for _ in range(generator.randint(1, 6)):
        damaged[generator.randrange(len(good))] = generator.choice((0, 1, 0x7F, 0xFF, generator.randrange(256)))
    return bytes(damaged[: generator.choice((len(good), len(good), generator.randrange(len(good))))])


def _fuzz(breakable: Breakable, count: int) -> None:
    generator = random.Random(0)
    descriptions = [_damage(breakable.good, generator) for _ in range(count)]
    codes = breakable.run(descriptions)
    assert len(codes) == count
    assert all(-5 <= code <= 0 for code in codes)
    assert {-1, -2, -3, -4, -5} <= set(codes), "the damage is of one kind only"


def test_damaged_descriptions_are_survived(breakable: Breakable) -> None:
    _fuzz(breakable, 1_000)


@pytest.mark.nightly
def test_many_damaged_descriptions_are_survived(breakable: Breakable) -> None:
    _fuzz(breakable, 50_000)
