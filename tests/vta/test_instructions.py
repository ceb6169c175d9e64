# SPDX-License-Identifier: Apache-2.0
"""VTA's configuration and instructions: one table encodes, decodes and names them all."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm.errors import ConfigError
from utvm.runtime.vta.configuration import DEFAULT, VARIABLE, load_configuration
from utvm.runtime.vta.instructions import InstructionSet

CONFIGURATIONS = [DEFAULT, *sorted((Path(__file__).parent / "configurations").glob("*.json"))]
SETS = [InstructionSet(load_configuration(path)) for path in CONFIGURATIONS]

# Encoded by hand from the hardware's description: [bits of the second word], [bits of the first word].
BY_HAND = [
    ("uop dst_idx=301 src_idx=1135 wgt_idx=999", (999 << 22 | 1135 << 11 | 301).to_bytes(4, "little")),
    (
        "load mem=INP sram=17 dram=0x12345 y_size=3 x_size=5 x_stride=40 ypad0=1 ypad1=2 xpad0=3 xpad1=4 push_next=1",
        (
            ((4 << 60 | 3 << 56 | 2 << 52 | 1 << 48 | 40 << 32 | 5 << 16 | 3) << 64)
            | (0x12345 << 26 | 17 << 10 | 2 << 7 | 1 << 6)
        ).to_bytes(16, "little"),
    ),
    (
        "gemm pop_prev=1 reset=1 uop_bgn=2 uop_end=8192 iter_out=3 iter_in=4 dst_out=5 dst_in=6 src_out=7 src_in=8"
        " wgt_out=9 wgt_in=10",
        (
            ((10 << 54 | 9 << 44 | 8 << 33 | 7 << 22 | 6 << 11 | 5) << 64)
            | (4 << 49 | 3 << 35 | 8192 << 21 | 2 << 8 | 1 << 7 | 1 << 3 | 2)
        ).to_bytes(16, "little"),
    ),
    (
        "alu op=SHR use_imm=1 imm=-8 uop_end=1 iter_out=1 iter_in=64 dst_in=1 src_in=1",
        (
            (((-8 & 0xFFFF) << 48 | 1 << 47 | 3 << 44 | 1 << 33 | 1 << 11) << 64) | (64 << 49 | 1 << 35 | 1 << 21 | 4)
        ).to_bytes(16, "little"),
    ),
    ("finish pop_prev=1 pop_next=1", (3 | 1 << 3 | 1 << 4).to_bytes(16, "little")),
]


@pytest.mark.parametrize(("line", "raw"), BY_HAND, ids=lambda value: str(value).split()[0])
def test_instruction_has_the_bits_of_the_hardware(line: str, raw: bytes) -> None:
    assert SETS[0].assemble(line) == raw
    assert SETS[0].assemble(SETS[0].disassemble(raw)) == raw


@given(st.data())
def test_encoded_instruction_is_decoded(data: Any) -> None:
    instructions = data.draw(st.sampled_from(SETS))
    kind = data.draw(st.sampled_from(sorted(instructions.fields)))
    values = {
        field.name: data.draw(
            st.integers(-(1 << field.width - 1), (1 << field.width - 1) - 1)
            if field.signed
            else st.integers(0, (1 << field.width) - 1)
        )
        for field in instructions.fields[kind]
    }
    raw = instructions.encode(kind, values)
    assert instructions.decode(raw) == (kind, values)
    assert instructions.assemble(instructions.disassemble(raw)) == raw


@pytest.mark.parametrize("instructions", SETS, ids=[path.stem for path in CONFIGURATIONS])
def test_fields_do_not_overlap_or_cross_words(instructions: InstructionSet) -> None:
    for kind, fields in instructions.fields.items():
        used_bits = 0 if kind == "uop" else 0b111
        for field in fields:
            mask = ((1 << field.width) - 1) << field.low
            assert field.low // 64 == (field.low + field.width - 1) // 64
            assert not used_bits & mask
            used_bits |= mask
        assert used_bits < 1 << (32 if kind == "uop" else 128)


@given(st.binary(min_size=0, max_size=20))
def test_any_bytes_are_decoded_or_refused(raw: bytes) -> None:
    try:
        line = SETS[0].disassemble(raw)
    except ConfigError:
        return
    assert SETS[0].assemble(line) == raw


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("jump", "'jump' is not a kind of instruction"),
        ("load mem=INP sram=65536", "sram=65536 is not in 0..65535"),
        ("load mem=CACHE", "mem='CACHE' is not a number, and none of UOP, WGT, INP"),
        ("alu imm=32768", "imm=32768 is not in -32768..32767"),
        ("gemm speed=1", "has no field 'speed'"),
        ("gemm reset=1 reset_reg=1", "reset is given twice"),
        ("store mem", "'mem' is not NAME=VALUE"),
    ],
)
def test_invalid_line_is_refused(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SETS[0].assemble(line)


def test_names_of_the_hardware_sources_are_accepted() -> None:
    assert SETS[0].assemble("load memory_type=acc sram_base=1 y_pad_0=2") == SETS[0].assemble(
        "load mem=3 sram=1 ypad0=2"
    )


def test_default_configuration_matches_the_bitstreams() -> None:
    configuration = load_configuration()
    assert configuration.bitstream == "1x16_i8w8a32_15_15_18_17"
    assert {name: (memory.element_bytes, memory.depth) for name, memory in configuration.memories.items()} == {
        "UOP": (4, 8192),
        "WGT": (256, 1024),
        "INP": (16, 2048),
        "ACC": (64, 2048),
        "OUT": (16, 2048),
        "ACC_8BIT": (16, 2048),
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"LOG_BLOCK": 9}, "LOG_BLOCK: Input should be less than or equal to 6"),
        ({"LOG_BLOCK": "4"}, "LOG_BLOCK: Input should be a valid integer"),
        ({"LOG_INP_WIDTH": 4}, "LOG_INP_WIDTH: Input should be 3"),
        ({"TARGET": "moon"}, "TARGET: Input should be 'sim', 'tsim' or 'pynq'"),
        ({"LOG_WGT_BUFF_SIZE": 7}, "LOG_WGT_BUFF_SIZE: the buffer must hold one element, which takes 256 bytes"),
        ({"LOG_UOP_BUFF_SIZE": 16}, "LOG_UOP_BUFF_SIZE: opcode, micro-op range and loops must fit in 64 bits"),
        ({"LOG_ACC_BUFF_SIZE": 19}, "LOG_ACC_BUFF_SIZE: a micro-op's three indices must fit in 32 bits"),
        ({"LOG_ACC_BUFF_SIZE": 24}, "LOG_ACC_BUFF_SIZE: the buffer may hold 65536 elements at most"),
        ({"LOG_INP_BUFF_SIZE": None}, "LOG_INP_BUFF_SIZE: Field required"),
        ({"COLOUR": 1}, "COLOUR: Extra inputs are not permitted"),
    ],
)
def test_invalid_configuration_names_key_and_rule(
    changes: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {**json.loads(DEFAULT.read_text(encoding="utf-8")), **changes}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(ConfigError) as refusal:
        load_configuration()
    assert refusal.value.message.startswith(str(path))
    assert message in refusal.value.message


@pytest.mark.parametrize("text", [None, "{", "[]", "[" * 100_000])
def test_unreadable_configuration_is_refused(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        load_configuration(path)
