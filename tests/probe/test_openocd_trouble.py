# SPDX-License-Identifier: Apache-2.0
"""OpenOCD in every kind of trouble: one error that says what to do, and nothing left running."""

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
from utvm.virtual.stlink_tcp import StLinkServer

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


def trouble(openocd: OpenOcd) -> ProbeError:
    with pytest.raises(ProbeError) as caught, openocd:
        pass
    return caught.value


def test_no_probe_is_plugged_in(tmp_path: Path) -> None:
    error = trouble(start(tmp_path, []))
    assert "open failed" in error.message  # OpenOCD's own words
    assert "no probe is plugged in" in error.hint


def test_the_virtual_board_is_not_running(tmp_path: Path) -> None:
    error = trouble(start(tmp_path, ["st-link backend tcp 1"]))
    assert "cannot connect to stlink server" in error.message
    assert "not running" in error.hint


def test_no_probe_has_that_serial_number(tmp_path: Path) -> None:
    with virtual_board(tmp_path) as board:
        error = trouble(start(tmp_path, [*backend(DAP, board), "adapter serial 066BFF"]))
    assert "serial mismatch" in error.message
    assert "serial number" in error.hint


def test_the_board_has_no_power(tmp_path: Path) -> None:
    """Where the probe could not be asked before, OpenOCD's own look at the voltage has the last word."""
    with start_virtual(boards.load_chip("stm32f746"), tmp_path / "board", millivolts=200) as board:
        error = trouble(start(tmp_path, backend(DAP, board)))
    assert "target voltage may be too low" in error.message
    assert "is it powered" in error.hint


def test_the_probe_is_used_by_another_openocd(tmp_path: Path) -> None:
    with ExitStack() as stack:
        rig = rig_on(stack, DAP, tmp_path)
        (tmp_path / "second").mkdir()
        error = trouble(start(tmp_path / "second", backend(DAP, rig.board)))
        assert "already used" in error.message
        assert "another program" in error.hint
        rig.gdb.write_memory(SRAM, b"unharmed")


@pytest.mark.parametrize(
    ("script", "words"), [("source [find target/no-such.cfg]", "no-such.cfg"), ("gibberish 1 2", "gibberish")]
)
def test_a_broken_configuration(tmp_path: Path, script: str, words: str) -> None:
    path = tmp_path / "broken.cfg"
    path.write_text(script)
    error = trouble(start(tmp_path, [], script=path))
    assert words in error.message
    assert "openocd.cfg" in error.hint


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Error: libusb_open() failed with LIBUSB_ERROR_ACCESS\nError: open failed", "udev rules"),
        ("Error: libusb_claim_interface() failed with LIBUSB_ERROR_BUSY\nError: open failed", "another program"),
        ("Info : Target voltage: 0.001\nError: target voltage may be too low for reliable debugging", "powered"),
        ("Error: init mode failed (unable to connect to the target)", "debug cable"),
        ("Error: unable to open ftdi device with description '*'\nError: no device found", "no probe"),
    ],
)
def test_what_only_a_real_probe_makes_openocd_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, hint: str
) -> None:
    # Stands in for an OpenOCD on a real probe: the words are OpenOCD 0.12's.
    script = tmp_path / "openocd"
    script.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    error = trouble(start(tmp_path, []))
    assert said.splitlines()[-1] in error.message
    assert hint in error.hint


def test_openocd_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error = trouble(start(tmp_path, []))
    assert "not installed" in error.message
    assert "doctor" in error.hint


class DeadBoard:
    """A board whose debug port answers and whose memory does not."""

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


def test_a_board_that_does_not_answer(tmp_path: Path) -> None:
    server = StLinkServer(DeadBoard(), serial="DEAD")
    threading.Thread(target=server.serve, daemon=True).start()
    error = trouble(start(tmp_path, [f"st-link backend tcp {server.port}"]))
    server.close()
    assert "the target does not answer" in error.message
    assert "is it powered" in error.hint


@pytest.mark.slow
def test_silent_probe_is_given_up_and_openocd_killed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        clients: list[socket.socket] = []
        thread = threading.Thread(target=lambda: clients.append(mute.accept()[0]))
        thread.start()
        error = trouble(start(tmp_path, [f"st-link backend tcp {mute.getsockname()[1]}"], timeout=1.0))
        thread.join()
        clients[0].close()
    assert "not ready after 1 s" in error.message


@pytest.mark.slow
@pytest.mark.parametrize("who", ["openocd", "board"])
def test_whoever_freezes_is_noticed_and_ended(tmp_path: Path, who: str) -> None:
    with ExitStack() as stack:
        rig = rig_on(stack, DAP, tmp_path, gdb_timeout=1.0)
        pids = {"openocd": rig.openocd.pid, "board": rig.board.pid}
        os.kill(pids[who], signal.SIGSTOP)
        # The kernel stops one thread after the other.
        threads = Path(f"/proc/{pids[who]}/task")
        while not all(") T " in stat.read_text() for stat in threads.glob("*/stat")):
            pass
        with pytest.raises(ProbeError, match="did not answer within 1 s"):
            rig.gdb.read_memory(SRAM, 4)
    assert not any(psutil.pid_exists(pid) for pid in pids.values())


def test_an_openocd_that_dies_is_named(tmp_path: Path) -> None:
    with ExitStack() as stack:
        rig = rig_on(stack, DAP, tmp_path)
        rig.openocd.check()
        os.kill(rig.openocd.pid, signal.SIGKILL)
        with pytest.raises(ProbeError, match=r"closed the connection|broke"):
            rig.gdb.read_memory(SRAM, 4)
        while rig.openocd.running:
            pass  # the kernel closes a dead process's connections a moment before it counts as dead
        with pytest.raises(ProbeError, match="OpenOCD ended unexpectedly"):
            rig.openocd.check()
        assert not rig.openocd.running


@pytest.mark.slow
def test_a_board_that_dies_mid_programming_is_an_error_of_ours(tmp_path: Path) -> None:
    with ExitStack() as stack:
        rig = rig_on(stack, DAP, tmp_path)
        rig.gdb.monitor("reset halt")
        image = bytes(range(256)) * 2048  # 512 KiB: takes seconds
        threading.Timer(0.5, os.kill, (rig.board.pid, signal.SIGKILL)).start()
        with pytest.raises(UtvmError):
            rig.gdb.flash([(FLASH, image)])
        with pytest.raises(ProbeError, match="ended unexpectedly"):
            rig.board.check()
