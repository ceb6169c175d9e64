# SPDX-License-Identifier: Apache-2.0
"""The model of VTA runs handwritten instructions: results equal numpy, and mistakes are named."""

import contextlib
import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from three_vtas import CONFIGURATIONS

from utvm.base.process import run_tool as run
from utvm.errors import BoardError
from utvm.runtime.vta.configuration import load_configuration
from utvm.runtime.vta.header import DRIVER, INCLUDE, config_header
from utvm.virtual import vta as model_room
from utvm.virtual.vta.simulator import DRAM, STAGES, VtaSimulator, simulator

MODEL = Path(model_room.__file__).parent

LOAD_INP = "load mem=INP sram=0 dram={inp} y_size=1 x_size=1 x_stride=1"
LOAD_WGT = "load mem=WGT sram=0 dram={wgt} y_size=1 x_size=1 x_stride=1"
LOAD_UOP = "load mem=UOP sram=0 dram={uop} y_size=1 x_size=1 x_stride=1"
LOAD_ACC = "load mem=ACC sram=0 dram={acc} y_size=1 x_size=1 x_stride=1"
GEMM = "gemm uop_bgn=0 uop_end=1 iter_out=1 iter_in=1"
ALU = "alu uop_bgn=0 uop_end=1 iter_out=1 iter_in=1"
STORE = "store mem=OUT sram=0 dram={out} y_size=1 x_size=1 x_stride=1"
# Multiply a block and add it to accumulators: each stage waits for the previous one.
PRODUCT = [
    LOAD_INP,
    LOAD_WGT + " push_next=1",
    LOAD_UOP,
    LOAD_ACC,
    GEMM + " pop_prev=1 push_next=1",
    STORE + " pop_prev=1 push_prev=1",
    "finish pop_next=1",
]


class Dram:
    """DRAM with one region for each kind of data."""

    def __init__(self, vta: VtaSimulator) -> None:
        self.vta = vta
        self.bytes = (ctypes.c_uint8 * (6 * 65536))()
        self.at = {name: 65536 * number for number, name in enumerate(("inp", "wgt", "acc", "uop", "out"))}

    def put(self, name: str, values: npt.NDArray[Any]) -> None:
        raw = values.tobytes()
        self.bytes[self.at[name] : self.at[name] + len(raw)] = list(raw)

    def out(self, count: int) -> npt.NDArray[np.int8]:
        return np.frombuffer(self.bytes, "int8", count, self.at["out"])

    def run(self, lines: list[str]) -> None:
        memories = self.vta.configuration.memories
        addresses = {name: (DRAM + start) // memories[name.upper()].element_bytes for name, start in self.at.items()}
        program = b"".join(self.vta.instructions.assemble(line.format(**addresses)) for line in lines)
        self.vta.run(program, self.bytes)


@pytest.mark.parametrize("first", STAGES)
def test_block_is_multiplied_with_any_stage_ahead(vta: VtaSimulator, first: str) -> None:
    batch, block = vta.configuration.batch, vta.configuration.block
    random = np.random.default_rng(1)
    inputs = random.integers(-128, 128, (batch, block)).astype("int8")
    weights = random.integers(-128, 128, (block, block)).astype("int8")
    before = random.integers(-(1 << 31), 1 << 31, (batch, block)).astype("int32")
    dram = Dram(vta)
    for name, values in (("inp", inputs), ("wgt", weights), ("acc", before)):
        dram.put(name, values)
    vta.look_first_after(first)
    dram.run(PRODUCT)
    expected = (before + inputs.astype("int32") @ weights.astype("int32").T).astype("int8")
    assert (dram.out(batch * block).reshape(batch, block) == expected).all()
    statistics = vta.statistics()
    assert statistics["gemm_counter"] == 1
    assert statistics["inp_load_nbytes"] == batch * block
    assert statistics["wgt_load_nbytes"] == block * block
    assert statistics["acc_load_nbytes"] == 4 * batch * block
    assert statistics["uop_load_nbytes"] == 4
    assert statistics["out_store_nbytes"] == batch * block
    assert [event.stage for event in vta.events()] == [*["load"] * 2, *["compute"] * 3, "store", "compute"]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("op=MIN use_imm=1 imm=-3", lambda a: np.minimum(a, -3)),
        ("op=MAX use_imm=1 imm=100", lambda a: np.maximum(a, 100)),
        ("op=ADD use_imm=1 imm=-32768", lambda a: a - 32768),
        ("op=SHR use_imm=1 imm=7", lambda a: a >> 7),
        ("op=ADD", lambda a: a + a),
    ],
)
def test_alu_equals_numpy(vta: VtaSimulator, operation: str, expected: Any) -> None:
    numbers = vta.configuration.batch * vta.configuration.block
    before = np.random.default_rng(2).integers(-(1 << 31), 1 << 31, numbers).astype("int32")
    dram = Dram(vta)
    dram.put("acc", before)
    dram.run([LOAD_UOP, LOAD_ACC, f"{ALU} {operation} push_next=1", f"{STORE} pop_prev=1 push_prev=1", PRODUCT[-1]])
    assert (dram.out(numbers) == expected(before).astype("int32").astype("int8")).all()
    assert vta.statistics()["alu_counter"] == 1


def test_padding_is_zeros_around_a_tile(vta: VtaSimulator) -> None:
    memory = vta.configuration.memories["ACC"]
    numbers = vta.configuration.batch * vta.configuration.block
    data = np.arange(1, 1 + 3 * 4 * numbers, dtype="int32").reshape(3, 4, numbers)
    dram = Dram(vta)
    dram.put("acc", data)
    tile = "load mem=ACC sram=2 dram={acc} y_size=2 x_size=2 x_stride=4 ypad0=1 ypad1=0 xpad0=1 xpad1=2"
    loop = "alu uop_bgn=0 uop_end=1 iter_out=1 iter_in=17 dst_in=1 op=MAX use_imm=1 imm=-1"
    store = "store mem=OUT sram=2 dram={out} y_size=1 x_size=15 x_stride=15 pop_prev=1 push_prev=1"
    dram.run([LOAD_UOP, tile, f"{loop} push_next=1", store, PRODUCT[-1]])
    expected = np.zeros((3, 5, numbers), "int32")
    expected[1:, 1:3] = data[:2, :2]
    assert memory.depth > 17
    assert (dram.out(15 * numbers) == expected.astype("int8").reshape(-1)).all()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (["finish pop_prev=1"], r"instruction 0 \(finish pop_prev=1\): deadlock"),
        ([LOAD_INP, GEMM + " pop_prev=1", "finish"], r"instruction 1 \(gemm pop_prev=1 .*deadlock: waits for a token"),
        (["load mem=INP dram=0 y_size=1 x_size=1", "finish"], "LOAD reads DRAM outside of every buffer, at byte"),
        ([LOAD_INP.replace("y_size=1", "y_size=65535"), "finish"], "LOAD reaches beyond the memory on the chip"),
        (["load mem=OUT x_size=1 y_size=1", "finish"], "LOAD fills UOP, WGT, INP, ACC or ACC_8BIT"),
        ([LOAD_WGT + " xpad0=1", "finish"], "only INP and ACC can be padded"),
        ([LOAD_INP + " push_next=1", "finish"], "tokens are left over"),
        ([LOAD_INP + " pop_prev=1", "finish"], "a token goes to a stage that does not exist"),
        ([LOAD_ACC + " push_next=1", STORE + " pop_prev=1 push_prev=1", PRODUCT[-1]], "neither GEMM nor ALU computed"),
        ([STORE.replace("OUT", "ACC") + " push_prev=1", PRODUCT[-1]], "STORE takes OUT"),
        ([STORE + " xpad1=1 push_prev=1", PRODUCT[-1]], "STORE has no padding"),
        ([LOAD_UOP, ALU + " op=SHR use_imm=1 imm=-1", "finish"], "SHR shifts right by 0 to 31"),
        ([LOAD_UOP, ALU + " op=5", "finish"], "the ALU has MIN, MAX, ADD and SHR"),
        ([LOAD_UOP, GEMM.replace("iter_in=1", "iter_in=9999") + " src_in=9", "finish"], "the source .* leaves its mem"),
        (
            [LOAD_UOP, GEMM.replace("iter_in=1", "iter_in=9999") + " dst_in=9", "finish"],
            "the destination .* leaves ACC",
        ),
        (["alu uop_end=9 iter_out=9999 iter_in=9999", "finish"], "does not come to an end"),
        ([LOAD_UOP], "a run ends with FINISH"),
        (["finish", LOAD_UOP, "finish"], r"instruction 0 \(finish\): a run ends with FINISH, and has no other"),
        ([LOAD_UOP, ALU + " push_next=1", STORE + " pop_prev=1", "finish"], "FINISH does not wait for this store"),
    ],
)
def test_mistake_is_named_with_its_instruction(vta: VtaSimulator, program: list[str], message: str) -> None:
    with pytest.raises(BoardError, match=r"^VTA: instruction \d+ \(") as caught:
        Dram(vta).run(program)
    assert caught.match(message)
    # The next run works.
    Dram(vta).run(["finish"])


@pytest.mark.slow
@given(st.data())
def test_random_programs_run_or_are_refused(data: Any) -> None:
    """Loops are short, so that no program takes long."""
    model = simulator(load_configuration(CONFIGURATIONS[data.draw(st.sampled_from(sorted(CONFIGURATIONS)))]))
    short = {"iter_out": 5, "iter_in": 5, "mem": 7, "dram": 70_000}
    program = b""
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["load", "store", "gemm", "alu"]))
        fields = [field for field in model.instructions.fields[kind] if not field.name.startswith(("pop", "push"))]
        values = {
            field.name: data.draw(st.integers(0, min(short.get(field.name, 99), (1 << field.width) - 1)))
            | (data.draw(st.sampled_from([0, 0, 1])) << field.width - 1 if field.name not in short else 0)
            for field in fields
            if not field.signed
        }
        if values.get("uop_end", 0) > 99:
            values["uop_end"] = values["uop_bgn"] + 1
        program += model.instructions.encode(kind, values)
    memory = (ctypes.c_uint8 * 4096)()
    with contextlib.suppress(BoardError):
        model.run(program + model.instructions.encode("finish", {}), memory)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_sources_compile_without_warnings(compiler: str, tmp_path: Path) -> None:
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wconversion", "-Wshadow", "-Wundef"]
    (tmp_path / "vta_config.h").write_text(config_header(load_configuration()))
    folders = (tmp_path, INCLUDE, MODEL)
    sources = (*DRIVER, *sorted(MODEL.glob("*.c")))
    assert len(sources) == 4
    run([compiler, *flags, "-fsyntax-only", *(f"-I{folder}" for folder in folders), *sources])


@pytest.mark.slow
def test_stages_run_in_parallel(default_vta: VtaSimulator) -> None:
    """Ten loads of inputs take no longer than ten parallel loads of accumulators."""
    Dram(default_vta).run([*[LOAD_INP] * 10, *[LOAD_ACC] * 10, "finish"])
    statistics = default_vta.statistics()
    assert statistics["modelled_load_cycles"] == 10 * (16 + 2)
    assert statistics["modelled_compute_cycles"] == 10 * (16 + 8) + 1
    assert statistics["modelled_cycles"] == statistics["modelled_compute_cycles"]
