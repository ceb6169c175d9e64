# SPDX-License-Identifier: Apache-2.0
"""Modules of ``vta.build`` for a PYNQ-Z1 run on a board behind ``./inv board.serve``, with the stock client."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_tutorials import play
from test_vector_add import vector_add
from three_vtas import CONFIGURATIONS

from hil_tests.bitstreams import build_bitstream
from tests.session.board_server import serve_board
from utvm import vta
from utvm.compiler.targets.vta import layout
from utvm.compiler.targets.vta.operators import Matmul, Requantise


def on_pynq(name: str, folder: Path) -> Path:
    """Write a configuration for hardware."""
    content = json.loads(CONFIGURATIONS[name].read_text())
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content | {"TARGET": "pynq"}))
    return path


def load(remote: Any, schedule: Any, env: vta.Env, name: str) -> Any:
    vta.build(schedule, env).export_library(name)
    remote.upload(name)
    return remote.load_module(name)


@pytest.mark.nightly  # The daily tests have a board in test_served, and modules for a server in test_tutorials.
def test_operators_run_on_a_served_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import tvm

    monkeypatch.chdir(tmp_path)
    # The emulated boards of this test are not programmed.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "vta.bit").write_bytes(build_bitstream())
    monkeypatch.setenv("UTVM_VTA_CONFIG", str(on_pynq("vta_config", tmp_path)))
    env, small = vta.get_env(), vta.get_env(str(on_pynq("small", tmp_path)))
    with serve_board(tmp_path, "--board", "pynq-z1:driver=qemu") as board:
        monkeypatch.setenv("VTA_RPC_HOST", board.address)
        monkeypatch.setenv("VTA_RPC_PORT", str(board.port))
        remote = vta.connect(env)
        with pytest.raises(
            Exception,
            match=r"other\.tar was compiled for the accelerator vta 1x8_i8w8a32_12_12_14_15, and "
            r"pynq-z1.* has vta 1x16_i8w8a32_15_15_18_17",
        ):
            load(remote, vector_add(small, 8), small, "other.tar")
        with pytest.raises(Exception, match="no bitstream is named"):
            remote.get_function("tvm.contrib.vta.init")("")
        early = load(remote, vector_add(env, 8), env, "early.tar")["vadd"]
        kinds = ("int32", "int32", "int8")
        tensors = [tvm.runtime.tensor(np.zeros((8, 1, 16), kind), remote.ext_dev(0)) for kind in kinds]
        with pytest.raises(
            Exception, match=r"(?s)VTA: instruction 0 \(load .*the logic is empty: board.program-fpga.*function vadd of"
        ):
            early(*tensors)
        del remote, early, tensors

        play("vta.md", "Get started", bitstream="vta.bit")
        assert "Successful vector add test!" in capsys.readouterr().out

        remote = vta.connect(env)
        dense = Matmul(16, 64, 40, Requantise(shift=7, rounding=True), bias=True)
        function = load(remote, dense.schedule(env), env, "dense.tar")
        numbers = np.random.default_rng(5)
        x, w = (numbers.integers(-128, 128, (rows, 64), np.int8) for rows in (16, 40))
        bias = numbers.integers(-5000, 5000, 40, np.int32)
        arrays = [layout.data(env, x), layout.weights(env, w), layout.bias(env, bias)]
        arrays.append(np.zeros((arrays[0].shape[0], arrays[1].shape[0], 1, 16), np.int8))
        tensors = [tvm.runtime.tensor(array, remote.ext_dev(0)) for array in arrays]
        function["main"](*tensors)
        total = x.astype(np.int32) @ w.astype(np.int32).T + bias
        expected = np.clip((total + 64) >> 7, -128, 127)
        np.testing.assert_array_equal(layout.unpack(tensors[3].numpy(), (16, 40)), expected)
        remote.get_function("CloseRPCConnection")()
