# SPDX-License-Identifier: Apache-2.0
"""Failures of OpenOCD: one error with a hint, and no process left."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from virtual_rig import FLASH, SRAM, backend, config, rig_on, virtual_board

from utvm import boards
from utvm.errors import ProbeError, UtvmError
from utvm.probe.openocd import OpenOcd
from utvm.probe.virtual import start_virtual
from utvm.virtual.bus import BusError
from utvm.virtual.cortex_m.kinds import KINDS
from utvm.virtual.serving import StLinkServer

DAP = "dapdirect_swd"


@pytest.fixture(autouse=True)
def no_orphans() -> Iterator[None]:
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


def start(directory: Path, commands: list[str], *, script: Path | None = None, timeout: float = 20.0) -> OpenOcd:
    return OpenOcd(
        script or config(DAP, directory), commands=commands, log=directory / "openocd.log", start_timeout=timeout
    )


def error_of(openocd: OpenOcd) -> ProbeError:
    with pytest.raises(ProbeError) as caught, openocd:
        pass
    return caught.value


def test_missing_probe(tmp_path: Path) -> None:
    error = error_of(start(tmp_path, []))
    assert "open failed" in error.message  # OpenOCD's own words
    assert "no probe is plugged in" in error.hint


def test_virtual_board_is_not_running(tmp_path: Path) -> None:
    error = error_of(start(tmp_path, ["st-link backend tcp 1"]))
    assert "cannot connect to stlink server" in error.message
    assert "not running" in error.hint


def test_unknown_serial_number(tmp_path: Path) -> None:
    with virtual_board(tmp_path) as board:
        error = error_of(start(tmp_path, [*backend(DAP, board), "adapter serial 066BFF"]))
    assert "serial mismatch" in error.message
    assert "serial number" in error.hint


def test_board_without_power(tmp_path: Path) -> None:
    """If the probe could not be queried before, OpenOCD's own measurement decides."""
    with start_virtual(boards.load_chip("stm32f746"), tmp_path / "board", millivolts=200) as board:
        error = error_of(start(tmp_path, backend(DAP, board)))
    assert "target voltage may be too low" in error.message
    assert "is it powered" in error.hint


def test_probe_in_use_by_another_openocd(tmp_path: Path) -> None:
    with ExitStack() as stack:
        rig = rig_on(stack, DAP, tmp_path)
        (tmp_path / "second").mkdir()
        error = error_of(start(tmp_path / "second", backend(DAP, rig.board)))
        assert "already used" in error.message
        assert "another program" in error.hint
        rig.gdb.write_memory(SRAM, b"unharmed")


@pytest.mark.parametrize(
    ("script", "words"), [("source [find target/no-such.cfg]", "no-such.cfg"), ("gibberish 1 2", "gibberish")]
)
def test_invalid_configuration(tmp_path: Path, script: str, words: str) -> None:
    path = tmp_path / "broken.cfg"
    path.write_text(script)
    error = error_of(start(tmp_path, [], script=path))
    assert words in error.message
    assert "openocd.cfg" in error.hint


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("Error: libusb_open() failed with LIBUSB_ERROR_ACCESS\nError: open failed", "udev rules"),
        ("Error: libusb_claim_interface() failed with LIBUSB_ERROR_BUSY\nError: open failed", "another program"),
        ("Info : Target voltage: 0.001\nError: target voltage may be too low for reliable debugging", "powered"),
        ("Error: init mode failed (unable to connect to the target)", "debug cable"),
        ("Error: unable to open ftdi device with description '*'\nError: no device found", "no probe"),
    ],
)
def test_messages_of_real_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, hint: str) -> None:
    # A fake OpenOCD on a real probe, with messages of OpenOCD 0.12.
    script = tmp_path / "openocd"
    script.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{message}\nEND\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    error = error_of(start(tmp_path, []))
    assert message.splitlines()[-1] in error.message
    assert hint in error.hint


def test_missing_openocd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error = error_of(start(tmp_path, []))
    assert "not installed" in error.message
    assert "doctor" in error.hint


class DeadBoard:
    """A board whose debug port replies and whose memory does not."""

    volts = 3.3
    powered = debuggable = True
    port_ids = KINDS["cortex-m7"].port

    def read(self, address: int, size: int) -> bytes:
        raise BusError(address)

    def write(self, address: int, data: bytes) -> None:
        raise BusError(address)

    def hold_reset(self) -> None:
        pass

    def release_reset(self) -> None:
        pass


def test_board_that_does_not_answer(tmp_path: Path) -> None:
    server = StLinkServer(DeadBoard(), serial="DEAD")
    threading.Thread(target=server.serve, daemon=True).start()
    error = error_of(start(tmp_path, [f"st-link backend tcp {server.port}"]))
    server.close()
    assert "the target does not answer" in error.message
    assert "is it powered" in error.hint


@pytest.mark.slow
def test_silent_probe_is_an_error_and_openocd_is_killed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        clients: list[socket.socket] = []
        thread = threading.Thread(target=lambda: clients.append(mute.accept()[0]))
        thread.start()
        error = error_of(start(tmp_path, [f"st-link backend tcp {mute.getsockname()[1]}"], timeout=1.0))
        thread.join()
        clients[0].close()
    assert "not ready after 1 s" in error.message


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["openocd", "board"])
def test_stopped_process_is_noticed_and_ended(tmp_path: Path, victim: str) -> None:
    with ExitStack() as stack:
        rig = rig_on(stack, DAP, tmp_path, gdb_timeout=1.0)
        pids = {"openocd": rig.openocd.pid, "board": rig.board.pid}
        os.kill(pids[victim], signal.SIGSTOP)
        # The kernel stops the threads one by one.
        threads = Path(f"/proc/{pids[victim]}/task")
        while not all(") T " in stat.read_text() for stat in threads.glob("*/stat")):
            pass
        with pytest.raises(ProbeError, match="did not answer within 1 s"):
            rig.gdb.read_memory(SRAM, 4)
    assert not any(psutil.pid_exists(pid) for pid in pids.values())


def test_killed_openocd_is_named(tmp_path: Path) -> None:
    with ExitStack() as stack:
        rig = rig_on(stack, DAP, tmp_path)
        rig.openocd.check()
        os.kill(rig.openocd.pid, signal.SIGKILL)
        with pytest.raises(ProbeError, match=r"closed the connection|broke"):
            rig.gdb.read_memory(SRAM, 4)
        while rig.openocd.running:
            pass  # the kernel closes the connections of a killed process a moment before it ends
        with pytest.raises(ProbeError, match="OpenOCD ended unexpectedly"):
            rig.openocd.check()
        assert not rig.openocd.running


@pytest.mark.slow
def test_board_killed_while_flashing_is_an_error(tmp_path: Path) -> None:
    with ExitStack() as stack:
        rig = rig_on(stack, DAP, tmp_path)
        rig.gdb.monitor("reset halt")
        image = bytes(range(256)) * 2048  # 512 KiB: takes seconds
        threading.Timer(0.5, os.kill, (rig.board.pid, signal.SIGKILL)).start()
        with pytest.raises(UtvmError):
            rig.gdb.flash([(FLASH, image)])
        with pytest.raises(ProbeError, match="ended unexpectedly"):
            rig.board.check()
