# SPDX-License-Identifier: Apache-2.0
"""Bitstreams are checked before they are sent: damaged, truncated and wrong-chip files are refused."""

import hashlib
import io
import json
import subprocess
import urllib.error
import urllib.request
import urllib.response
from email.message import Message
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hil_tests.bitstreams import DATA, build_bitstream
from tests.cli.running import inv
from utvm import boards, vta
from utvm.errors import ConfigError
from utvm.probe.debug_port import OpenOcdPort
from utvm.probe.gdb import GdbClient
from utvm.runtime.vta.configuration import DEFAULT


def program(tmp_path: Path, raw: bytes) -> None:
    """Send a bitstream to the model in this process."""
    path = tmp_path / "1x16_i8w8a32_15_15_18_17.bit"
    path.write_bytes(raw)
    vta.program_fpga(vta.connect(vta.get_env()), path)


@pytest.fixture(autouse=True)
def _local_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VTA_RPC_HOST", raising=False)


def with_idcode(idcode: int) -> bytes:
    """Bitstream that writes IDCODE after the synchronisation word, as the published ones do."""
    return build_bitstream(data=DATA[:-64] + bytes.fromhex("30018001") + idcode.to_bytes(4, "big") + DATA[-64:])


@pytest.mark.parametrize(
    "raw",
    [
        build_bitstream(),
        # The published bitstreams: same die, more pins.
        build_bitstream(part=b"7z020clg484"),
        build_bitstream(part=b"7z020iclg484"),
        build_bitstream(part=b"xc7z020clg400"),
        # Every revision of the die.
        with_idcode(0x03727093),
        with_idcode(0x23727093),
    ],
)
def test_bitstream_for_the_die_is_sent(raw: bytes, tmp_path: Path) -> None:
    program(tmp_path, raw)


class Published(urllib.request.HTTPSHandler):
    """Serves other content at the published address."""

    def https_open(self, req: urllib.request.Request) -> Any:
        if "/0.0.2/" in req.full_url:
            raise urllib.error.URLError("no route")
        reply = urllib.response.addinfourl(io.BytesIO(b"something else"), Message(), req.full_url, 200)
        reply.msg = "OK"  # urllib reads it
        return reply


def test_published_bitstream_is_checked_by_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file, the configuration's bitstream comes from the cache or its address, and its hash is checked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("UTVM_VTA_CONFIG", str(tmp_path / "vta_config.json"))
    monkeypatch.setattr(urllib.request, "_opener", None)
    remote = vta.connect(vta.get_env(str(DEFAULT)))
    configuration = json.loads(DEFAULT.read_text()) | {"TARGET": "pynq"}

    def refusal(**changes: object) -> str:
        (tmp_path / "vta_config.json").write_text(json.dumps(configuration | changes))
        with pytest.raises(ConfigError) as caught:
            vta.program_fpga(remote)
        return str(caught.value)

    urllib.request.install_opener(urllib.request.build_opener(Published(), urllib.request.ProxyHandler({})))
    name = "0.0.2/1x16_i8w8a32_15_15_18_17.bit"
    path = tmp_path / "utvm/bitstreams" / name
    assert f"/bitstreams/pynq/{name}: cannot be fetched: no route" in (message := refusal())
    assert f"put the file at {path}" in message
    path.parent.mkdir(parents=True)
    path.write_bytes(build_bitstream())
    assert (
        f"{name}: has SHA-256 {hashlib.sha256(build_bitstream()).hexdigest()}, and the published file 0b24cdf9001d"
        in refusal()
    )
    assert "something" not in (message := refusal(HW_VER="0.0.1")) and "and the published file c8808d2f4877" in message
    assert not (tmp_path / "utvm/bitstreams/0.0.1").exists()
    assert "no bitstream 0.0.2/1x32_i8w8a32_15_15_18_17.bit is published" in refusal(LOG_BLOCK=5)
    (tmp_path / "vta_config.json").write_text(DEFAULT.read_text())
    vta.program_fpga(remote)  # A model has no bitstream.


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (build_bitstream(part=b"7a35tcpg236"), "is for the chip '7a35tcpg236', and this one is 7z020"),
        (build_bitstream(part=b"7z010clg400"), "is for the chip '7z010clg400', and this one is 7z020"),
        (build_bitstream(part=b"7z0201clg400"), "is for the chip '7z0201clg400'"),
        # The chip checks the data, not the header (UG470, table 1-1: the XC7Z010).
        (with_idcode(0x03722093), "is for a die with IDCODE 0x03722093, and this one has 0x03727093"),
        (build_bitstream()[:-1], "has 119 bytes of data, and its header says 120"),
        (build_bitstream(length=10_000_000), "has 120 bytes of data, and its header says 10,000,000"),
        (build_bitstream(data=b"\0" * 200), "does not start with a synchronisation word"),
        (build_bitstream()[:30], "its header is damaged at byte 13, where its design should be"),
        (build_bitstream().replace(b"e\0\0\0", b"f\0\0\0"), "where its data should be"),
        (b"\x7fELF", "is not a Xilinx bitstream"),
        (b"", "is empty"),
    ],
)
def test_bad_bitstream_is_refused_with_the_reason(raw: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        program(tmp_path, raw)
    assert "1x16_i8w8a32_15_15_18_17.bit: " in refusal.value.message


def test_missing_bitstream_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.bit: cannot be read"):
        vta.program_fpga(vta.connect(vta.get_env()), tmp_path / "missing.bit")


@given(st.integers(0, len(build_bitstream())), st.binary(max_size=8))
def test_damaged_header_is_no_crash(offset: int, damage: bytes) -> None:
    from tempfile import TemporaryDirectory

    raw = build_bitstream()
    with TemporaryDirectory() as folder:
        try:
            program(Path(folder), raw[:offset] + damage + raw[offset + len(damage) :])
        except ConfigError as error:
            assert ".bit: " in error.message


# On a board: connection and command.


@pytest.mark.slow
def test_emulated_board_remembers_its_bitstream(tmp_path: Path) -> None:
    (tmp_path / "vta.bit").write_bytes(build_bitstream())
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = ("board.program-fpga", "--board", "pynq-z1", "--virtual", "--bitstream")
    completed = inv(*command, tmp_path / "vta.bit", **cache)
    assert completed.returncode == 0, completed.stderr
    assert "programmed: vta.bit, 120 bytes, for 7z020clg400" in completed.stdout
    assert "VIRTUAL" in completed.stdout
    assert (tmp_path / "cache/utvm/logic/pynq-z1").read_text() == "vta.bit"


@pytest.mark.parametrize(
    ("board", "raw", "message"),
    [
        ("pynq-z1", build_bitstream(part=b"7a35tcpg236"), "is for the chip '7a35tcpg236', and this one is 7z020"),
        ("pynq-z1", build_bitstream()[:-1], "has 119 bytes of data, and its header says 120"),
        ("stm32f746", build_bitstream(), "stm32f746 has no programmable logic"),
    ],
)
def test_bad_bitstream_is_refused_before_the_board(board: str, raw: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "vta.bit").write_bytes(raw)
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    completed = inv("board.program-fpga", "--board", board, "--bitstream", tmp_path / "vta.bit", **cache)
    assert completed.returncode == 2 and message in completed.stderr and "VIRTUAL" not in completed.stdout
    assert not (tmp_path / "cache/utvm/logic").exists()


# The real OpenOCD runs the board's files and the bitstream command, without an adapter.
_DUMMY = "set PYNQ_Z1_INTERFACE interface/dummy.cfg"
_NO_ADAPTER = (
    "proc jtag_init {} {}; proc init_reset {mode} {}",
    "rename dap _dap; proc dap {args} { if {[lindex $args 0] ne {init}} {_dap {*}$args} }",
    "zynq.cpu0 configure -defer-examine; zynq.cpu1 configure -defer-examine",
    "gdb_port disabled; tcl_port disabled; telnet_port disabled",
)


@pytest.mark.parametrize("name", ["vta.bit", "two words [1].bit"])
def test_openocd_loads_a_bitstream_by_the_boards_command(name: str, tmp_path: Path) -> None:
    board, file = boards.load("pynq-z1"), tmp_path / name
    sent: list[str] = []

    class Gdb:
        def monitor(self, command: str, timeout: float) -> None:
            sent.append(command)

    for raw, exit_status in ((build_bitstream(), 0), (b"no bitstream" * 20, 1)):
        file.write_bytes(raw)
        OpenOcdPort(cast(GdbClient, Gdb()), live=True).program_logic(file, board.programmable.load)
        commands = (_DUMMY, f"source {board.openocd_config}", *_NO_ADAPTER, "init", sent.pop(), "shutdown")
        arguments = [word for command in commands for word in ("-c", command)]
        completed = subprocess.run(["openocd", *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert completed.returncode == exit_status, completed.stderr
        assert f"{'loaded' if not exit_status else 'failed loading'} file {file} to pld device 0" in completed.stderr
