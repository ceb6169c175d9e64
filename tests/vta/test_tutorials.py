# SPDX-License-Identifier: Apache-2.0
"""The pages about VTA are programs: each page runs completely, from its first block to its last."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import tvm
from test_vector_add import vector_add
from three_vtas import CONFIGURATIONS

from utvm import vta
from utvm.paths import DATA


def play(name: str, heading: str = "", bitstream: str = "") -> None:
    """Run the Python of a page, or of one of its sections; for hardware with a bitstream."""
    page = (DATA / "docs" / name).read_text(encoding="utf-8")
    if heading:
        page = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 2
    program = "\n".join(blocks)
    if bitstream:
        assert program.count("bitstream=None") == 1
        program = program.replace("bitstream=None", f"bitstream={bitstream!r}")
    exec(compile(program, name, "exec"), {"__name__": name})


@pytest.fixture(autouse=True)
def _in_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages write files into the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("VTA_RPC_HOST", "VTA_RPC_PORT", "UTVM_VTA_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def test_get_started(capsys: pytest.CaptureFixture[str]) -> None:
    vta.simulator(vta.get_env()).clear()
    play("vta.md", "Get started")
    output = capsys.readouterr().out
    assert "Successful vector add test!" in output
    assert "VTALoadBuffer2D" in output
    assert "'alu_counter': 64," in output
    assert "'acc_load_nbytes': 8192," in output


@pytest.mark.slow
def test_get_started_with_a_server(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same page with a server, and a module for another VTA."""
    server = vta.serve(vta.get_env())
    try:
        monkeypatch.setenv("VTA_RPC_HOST", "127.0.0.1")
        monkeypatch.setenv("VTA_RPC_PORT", str(server.port))
        play("vta.md", "Get started")
        assert "Successful vector add test!" in capsys.readouterr().out
        other = vta.get_env(str(CONFIGURATIONS["small"]))
        remote = vta.connect(other)
        vta.build(vector_add(other, 8), other).export_library("other.so")
        remote.upload("other.so")
        module, device = remote.load_module("other.so"), remote.ext_dev(0)
        kinds = ("int32", "int32", "int8")
        tensors = [tvm.runtime.tensor(np.zeros((8, other.BATCH, other.BLOCK_OUT), kind), device) for kind in kinds]
        with pytest.raises(tvm.error.RPCError, match=f"built for the VTA {other.BITSTREAM}, and this process has 1x16"):
            module["vadd"](*tensors)
    finally:
        server.terminate()


def test_blocked_matrix_multiplication(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    play("vta-gemm.md")
    assert "modelled cycles: " in capsys.readouterr().out
    drawing = ElementTree.parse(tmp_path / "gemm.svg").getroot()
    bars = drawing.findall(".//{http://www.w3.org/2000/svg}rect")
    texts = [element.text for element in drawing.findall(".//{http://www.w3.org/2000/svg}text")]
    assert len(bars) > 100
    # Stages, the legend, and the axis of cycles.
    assert {"load", "compute", "store", "gemm", "alu", "waits", "cycles", "0"} < set(texts)
    assert any(str(text).startswith("compute waited ") and str(text).endswith(" for load") for text in texts)


def test_convolution(capsys: pytest.CaptureFixture[str]) -> None:
    play("vta-convolution.md")
    assert "Successful convolution test!" in capsys.readouterr().out
