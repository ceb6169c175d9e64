# SPDX-License-Identifier: Apache-2.0
"""The stock client programs the logic of a board behind ``./inv board.serve``; then VTA works."""

from pathlib import Path

import numpy as np
import pytest

from hil_tests.bitstreams import DATA, build_bitstream
from models.tflite_reference import tflite_micro
from tests.session.board_server import MODEL, serve_board
from utvm import vta
from utvm.errors import ConfigError


@pytest.mark.slow
def test_bitstream_is_sent_to_a_served_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm
    from tvm import rpc

    # The emulated boards of this test are not programmed.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # The length of a real bitstream for this chip.
    (tmp_path / "vta.bit").write_bytes(build_bitstream(data=DATA + bytes(4_045_564 - len(DATA))))
    (tmp_path / "other.bit").write_bytes(build_bitstream(part=b"7a35tcpg236"))
    array = np.random.default_rng(0).integers(-128, 128, (1, 8, 8, 1), np.int8)
    with serve_board(tmp_path, "--board", "pynq-z1:driver=qemu", "--set", "accelerator=all") as board:
        remote = rpc.connect(board.address, board.port)
        remote.get_function("utvm.set_input")(0, tvm.runtime.tensor(array, remote.cpu()))
        with pytest.raises(Exception, match=r"VTA: instruction 0 \(load .*the logic is empty: board.program-fpga"):
            remote.get_function("utvm.run")()

        remote = rpc.connect(board.address, board.port)
        with pytest.raises(ConfigError, match=r"other\.bit: is for the chip '7a35tcpg236'"):
            vta.program_fpga(remote, tmp_path / "other.bit")
        # The board's side also checks an upload.
        remote.upload(str(tmp_path / "other.bit"))
        program = remote.get_function("tvm.contrib.vta.init")
        with pytest.raises(Exception, match=r"other\.bit: is for the chip '7a35tcpg236'"):
            program("other.bit")
        with pytest.raises(Exception, match=r"none\.bit was not uploaded"):
            program("none.bit")
        with pytest.raises(Exception, match="is not a file name"):
            remote.upload(bytearray(build_bitstream()), "../vta.bit")

        vta.program_fpga(remote, tmp_path / "vta.bit")
        remote.get_function("utvm.set_input")(0, tvm.runtime.tensor(array, remote.cpu()))
        remote.get_function("utvm.run")()
        output = tvm.runtime.tensor(np.zeros((1, 10), np.int8), remote.cpu())
        remote.get_function("utvm.get_output")(0, output)
        ((expected,),) = tflite_micro(MODEL.read_bytes(), [[array]])
        np.testing.assert_array_equal(output.numpy(), expected)
        remote.get_function("CloseRPCConnection")()
