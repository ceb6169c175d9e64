# SPDX-License-Identifier: Apache-2.0
"""The smallest operator through the public API: declared with te, scheduled, built, run; and refusals."""

from typing import Any

import numpy as np
import pytest
import tvm
from three_vtas import CONFIGURATIONS
from tvm import s_tir, te

from utvm import vta
from utvm.errors import BoardError, CompileError, ConfigError, DoesNotFitError


def vector_add(env: vta.Env, rows: int, kind: str = "int32") -> s_tir.Schedule:
    shape = (rows, env.BATCH, env.BLOCK_OUT)
    a, b = (te.placeholder(shape, name=name, dtype=kind) for name in "AB")
    total = te.compute(shape, lambda *i: a(*i).astype("int32") + b(*i).astype("int32"), name="C_buf")
    c = te.compute(shape, lambda *i: total(*i).astype("int8"), name="C")
    schedule = s_tir.Schedule(te.create_prim_func([a, b, c]).with_attr("global_symbol", "vadd"))
    block = schedule.get_sblock("C_buf")
    for number in (1, 0):
        schedule.cache_read(block, number, env.acc_scope)
    schedule.set_scope(block, 0, env.acc_scope)
    return schedule


@pytest.mark.parametrize("name", sorted(CONFIGURATIONS))
def test_vectors_are_added(name: str) -> None:
    env = vta.get_env(str(CONFIGURATIONS[name]))
    module = vta.build(vector_add(env, 40), env)
    model, device = vta.simulator(env), tvm.runtime.device("ext_dev", 0)
    model.clear()
    shape = (40, env.BATCH, env.BLOCK_OUT)
    a, b = np.random.default_rng(3).integers(-128, 128, (2, *shape)).astype("int32")
    c = tvm.runtime.tensor(np.zeros(shape, "int8"), device)
    for _ in range(2):
        module["vadd"](tvm.runtime.tensor(a, device), tvm.runtime.tensor(b, device), c)
        assert (c.numpy() == (a + b).astype("int8")).all()
    statistics = model.statistics()
    assert statistics["alu_counter"] == 2 * 40
    assert statistics["acc_load_nbytes"] == 2 * 2 * a.nbytes
    assert statistics["out_store_nbytes"] == 2 * c.numpy().nbytes


def test_lowered_code_has_the_driver_calls() -> None:
    env = vta.get_env()
    text = vta.lower(vector_add(env, 64), env).script()
    assert text.count("VTALoadBuffer2D") == 2
    assert text.count("VTAStoreBuffer2D") == 1
    assert 'T.call_extern("int32", "VTAUopLoopBegin", 64, 1, 1, 0)' in text


def test_too_large_operator_is_refused() -> None:
    env = vta.get_env()
    with pytest.raises(DoesNotFitError, match="VTA: 4000 elements of ACC are needed, of 2048"):
        vta.lower(vector_add(env, 2000), env)


def test_uneven_split_is_refused() -> None:
    env = vta.get_env()
    schedule = vector_add(env, 16)
    outer, _ = schedule.split(schedule.get_loops(schedule.get_sblock("C"))[0], [None, 5])
    schedule.compute_at(schedule.get_sblock("C_buf"), outer)
    with pytest.raises(CompileError, match=r"a split leaves a remainder: .* < 16 is not always true"):
        vta.lower(schedule, env)


def test_missing_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VTA_RPC_HOST", "127.0.0.1")
    for port, message in (("9", "no RPC server answers at 127.0.0.1:9"), ("99999", "'99999', which is not a port")):
        monkeypatch.setenv("VTA_RPC_PORT", port)
        with pytest.raises((BoardError, ConfigError), match=message):
            vta.connect(vta.get_env())


@pytest.mark.parametrize(
    ("shape", "compute", "message"),
    [
        ((4, 1, 16), lambda a, b: a * b, "the ALU cannot do"),
        ((4, 1, 10), lambda a, b: a + b, "the innermost loops cover 1 of the 16 numbers|does not divide"),
    ],
)
def test_unsupported_operator_is_refused(shape: tuple[int, ...], compute: Any, message: str) -> None:
    env = vta.get_env()
    a, b = (te.placeholder(shape, name=name, dtype="int32") for name in "AB")
    total = te.compute(shape, lambda *i: compute(a(*i), b(*i)), name="C_buf")
    c = te.compute(shape, lambda *i: total(*i).astype("int8"), name="C")
    schedule = s_tir.Schedule(te.create_prim_func([a, b, c]))
    block = schedule.get_sblock("C_buf")
    for number in (1, 0):
        schedule.cache_read(block, number, env.acc_scope)
    schedule.set_scope(block, 0, env.acc_scope)
    with pytest.raises(CompileError, match=message):
        vta.lower(schedule, env)
