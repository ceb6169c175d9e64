# SPDX-License-Identifier: Apache-2.0
"""The stock client programs the logic of a board that ``./inv board.serve`` serves, and VTA works from then on."""

from pathlib import Path

import numpy as np
import pytest

from hil_tests.bitstreams import DATA, made
from models.tflite_reference import tflite_micro
from tests.session.served import MODEL, served
from utvm import vta
from utvm.errors import ConfigError


@pytest.mark.slow
def test_a_bitstream_goes_to_a_served_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm
    from tvm import rpc

    # Nobody has programmed the emulated boards of this user.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # As long as those for this chip are.
    (tmp_path / "vta.bit").write_bytes(made(data=DATA + bytes(4_045_564 - len(DATA))))
    (tmp_path / "other.bit").write_bytes(made(part=b"7a35tcpg236"))
    array = np.random.default_rng(0).integers(-128, 128, (1, 8, 8, 1), np.int8)
    with served(tmp_path, "--board", "pynq-z1:driver=qemu", "--set", "accelerator=all") as board:
        remote = rpc.connect(board.address, board.port)
        remote.get_function("utvm.set_input")(0, tvm.runtime.tensor(array, remote.cpu()))
        with pytest.raises(Exception, match=r"VTA: instruction 0 \(load .*the logic is empty: board.program-fpga"):
            remote.get_function("utvm.run")()

        remote = rpc.connect(board.address, board.port)
        with pytest.raises(ConfigError, match=r"other\.bit: is for the chip '7a35tcpg236'"):
            vta.program_fpga(remote, tmp_path / "other.bit")
        # Whoever does not look himself is told by the board's side.
        remote.upload(str(tmp_path / "other.bit"))
        program = remote.get_function("tvm.contrib.vta.init")
        with pytest.raises(Exception, match=r"other\.bit: is for the chip '7a35tcpg236'"):
            program("other.bit")
        with pytest.raises(Exception, match=r"none\.bit was not uploaded"):
            program("none.bit")
        with pytest.raises(Exception, match="is not a file name"):
            remote.upload(bytearray(made()), "../vta.bit")

        vta.program_fpga(remote, tmp_path / "vta.bit")
        remote.get_function("utvm.set_input")(0, tvm.runtime.tensor(array, remote.cpu()))
        remote.get_function("utvm.run")()
        output = tvm.runtime.tensor(np.zeros((1, 10), np.int8), remote.cpu())
        remote.get_function("utvm.get_output")(0, output)
        ((expected,),) = tflite_micro(MODEL.read_bytes(), [[array]])
        np.testing.assert_array_equal(output.numpy(), expected)
        remote.get_function("CloseRPCConnection")()
