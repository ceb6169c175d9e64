# SPDX-License-Identifier: Apache-2.0
"""Boards that QEMU emulates: their data, errors of QEMU, and agreement with utvm's own model."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hil_tests.programs import handwritten
from models.digits import quantize
from models.digits.data import held_out
from utvm import boards, firmware
from utvm.boards import Board
from utvm.compiler import Library, compile_model, load
from utvm.drivers import attach, choose
from utvm.drivers.builtin.qemu import Qemu
from utvm.errors import BoardError, ConfigError, ProbeError
from utvm.selection import BoardSelection
from utvm.session import HostDriven, RunResult, StandaloneRunner
from utvm.session.board_holder import start_session

pytestmark = pytest.mark.slow

_NAME = "mps2-an500"
_EMULATOR = {"kind": "qemu", "program": "qemu-system-arm", "machine": _NAME, "icount_shift": 7}
_LOOP = handwritten(
    "loop", '  __asm__ volatile("1: subs %0, #1\\n bne 1b" : "=r"(y[0]) : "0"(x[0]) : "cc");\n  return 0;'
)


def _variant(folder: Path, **changes: Any) -> Board:
    """Return the board with some of its data changed."""
    target = folder / _NAME
    shutil.copytree(boards.load(_NAME).directory, target)
    content = yaml.safe_load((target / "board.yaml").read_text()) | changes
    (target / "board.yaml").write_text(yaml.safe_dump(content))
    return boards.load(str(target))


# QEMU's stub does not support these.
_BY_OPENOCD = {"access widths", "write errors"}


def test_capabilities_follow_from_the_data(tmp_path: Path) -> None:
    emulated, modelled = boards.load(_NAME), boards.load("stm32f746")
    always = {"debug port", "console", "trap: division by zero", "trap: code that is not Thumb"}
    always |= {"counter", "bus errors", "execute never", "room"}
    live = "memory while running"
    assert emulated.capabilities == always
    of_the_model = {"watchpoints", "reset cause", live, "flash", "OpenOCD", "pins"}
    assert modelled.capabilities == always | of_the_model | _BY_OPENOCD
    assert modelled.capabilities_of("virtual") == modelled.capabilities_of("physical") | {"pins"}
    variant = _variant(tmp_path, virtual={"emulator": _EMULATOR})
    assert variant.capabilities == {*always, "reset cause"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"virtual": {"emulator": {**_EMULATOR, "kind": "bochs"}}}, r"virtual\.emulator\.kind: .*'qemu'"),
        ({"virtual": {"emulator": {**_EMULATOR, "machine": ""}}}, r"virtual\.emulator\.machine: "),
        ({"virtual": {"emulator": {**_EMULATOR, "icount_shift": 11}}}, r"icount_shift: .*or equal to 10"),
        ({"virtual": {"emulator": {"kind": "qemu"}}}, r"virtual\.emulator\.program: Field required"),
        ({"virtual": {"emulator": _EMULATOR, "cpu": "cortex-m7"}}, r"virtual\.cpu: Extra inputs"),
        ({"physical": {"probes": []}}, r"physical\.identity: Field required.*physical\.select_serial: "),
        ({"openocd": {}}, "openocd: Extra inputs"),
        ({"virtual": {"emulator": _EMULATOR, "lacks": ["legs"]}}, r"virtual\.lacks.*: Input should be 'reset cause'"),
        ({"port": {"name": "plain", "numbers": {"bus_hz": 0}}}, r"port: .*numbers\.bus_hz is a clock frequency"),
        ({"cycle_counter": "sundial"}, "cycle_counter: .*'architecture', 'systick', 'port' or 'none'"),
    ],
)
def test_bad_data_is_refused_by_key(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _variant(tmp_path, **changes)


def test_emulated_board_cannot_be_physical() -> None:
    board = boards.load(_NAME)
    assert choose(board, BoardSelection()).kind == "virtual"
    for kind, serial in (("physical", ""), ("auto", "123")):
        with pytest.raises(ConfigError, match="mps2-an500 is emulated"):
            choose(board, BoardSelection("", kind, serial))


def test_pipe_must_be_one_of_the_boards(doubler: Library, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mps2-an500 has no transport 'tcp'") as caught:
        firmware.build(boards.load(_NAME), [doubler], "rpc", pipe="tcp")
    assert caught.value.hint == "it has: console, rtt, semihosting"
    assert firmware.build(boards.load("mps2-an385"), [doubler], "rpc").pipe == "console"
    # The capabilities of this connection count, and not those of the board's file.
    capabilities = frozenset({"debug port"})
    assert firmware.build(boards.load("mps2-an385"), [doubler], "rpc", able=capabilities).pipe == "rtt"
    sample = np.zeros(4, np.int32)
    assert firmware.build(boards.load(_NAME), [doubler], "standing_alone", [sample]).pipe is None
    silent = _bare(tmp_path, "pynq-z1")
    with pytest.raises(ConfigError, match="pynq-z1 has no transport 'rtt'"):
        firmware.build(silent, [doubler], "standing_alone", [sample])


def _bare(folder: Path, name: str, **changes: Any) -> Board:
    """Return a board without its console."""
    target = folder / name
    shutil.copytree(boards.load(name).directory, target)
    content = yaml.safe_load((target / "board.yaml").read_text()) | changes
    del content["console"]
    (target / "board.yaml").write_text(
        yaml.safe_dump({key: value for key, value in content.items() if value is not None})
    )
    return boards.load(str(target))


def test_board_with_only_a_debug_port_runs_and_reports(doubler: Library, tmp_path: Path) -> None:
    """Without console and port, counting with SysTick: host-driven, RPC over both pipes, and standalone."""
    board = _bare(tmp_path, "mps2-an385", port=None, cycle_counter="systick")
    x = np.array([1, -2, 3, 4], np.int32)
    with attach(board, "virtual", log_directory=tmp_path) as connection:
        assert connection.console is None
        results = []
        for pipe in ("", "rtt", "semihosting"):
            image = firmware.build(board, [doubler], "rpc" if pipe else "host_driven", pipe=pipe)
            with start_session(connection, image) as session:
                results.append(session.run("doubler", [x]))
        alone = StandaloneRunner(connection, firmware.build(board, [doubler], "standing_alone", [x]))
        results.append(alone.reset())
    assert all(result.outputs[0].tolist() == [2, -4, 6, 8] for result in results)
    assert {result.unit for result in results} == {"instructions"}
    assert results[0].count == results[-1].count


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"program": "no-such-qemu"}, "no-such-qemu is not installed"),
        ({"machine": "no-such-machine"}, "unsupported machine type"),
    ],
)
def test_qemu_that_does_not_start_is_named(tmp_path: Path, change: dict[str, str], message: str) -> None:
    board = _variant(tmp_path, virtual={"emulator": {**_EMULATOR, **change}})
    with pytest.raises(ProbeError, match=message) as caught, attach(board, "auto", log_directory=tmp_path):
        pass
    assert caught.value.hint


def test_qemu_that_ends_early_is_named(tmp_path: Path, doubler: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Qemu] = []
    enter = Qemu.__enter__
    monkeypatch.setattr(Qemu, "__enter__", lambda self: (started.append(self), enter(self))[1])
    board = boards.load(_NAME)
    with attach(board, "virtual", log_directory=tmp_path) as connection:
        assert "VIRTUAL board, emulated by QEMU" in connection.describe()
        assert "without OpenOCD" in connection.describe()
        connection.program(firmware.build(board, [doubler]))
        os.kill(started[0].pid, signal.SIGKILL)
        with pytest.raises(ProbeError) as caught:
            connection.read_memory(0, 4)
        assert str(tmp_path / "qemu.log") in caught.value.hint
        os.waitid(os.P_PID, started[0].pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ProbeError, match="QEMU ended unexpectedly"):
            connection.check()


def test_memory_is_accessible_while_the_core_runs(tmp_path: Path, doubler: Library) -> None:
    board = boards.load(_NAME)
    image = firmware.build(board, [doubler])
    with attach(board, "virtual", log_directory=tmp_path) as connection:
        assert connection.console is not None
        connection.program(image)
        connection.reset(halt=False)
        for _ in range(3):
            assert connection.first_difference(image) is None
        assert connection.console.read_until(b"is up", 10.0).endswith(b"utvm: mps2-an500 is up")
        with pytest.raises(BoardError, match="cannot be switched from here"):
            connection.power_cycle()


@pytest.mark.parametrize("name", [_NAME, "netduinoplus2", "pynq-z1:driver=qemu", "microbit", "mps3-an547"])
def test_every_instruction_is_counted(name: str, tmp_path: Path) -> None:
    """A round is two instructions (ARM DDI 0403E, A7.7: SUBS and B).

    The longest run exceeds SysTick's range, on boards that count with it.
    """
    board = boards.load(name)
    with (
        attach(board, "virtual", log_directory=tmp_path) as connection,
        HostDriven(connection, firmware.build(board, [_LOOP])) as session,
    ):
        counts = {
            rounds: session.run("loop", [np.full(4, rounds, np.int32)]).count
            for rounds in (1, 2, 3, 5, 1000, 5_000_003)
        }
    assert {rounds: count - counts[1] for rounds, count in counts.items()} == {n: 2 * (n - 1) for n in counts}


def _runs(board: Board, library: Library, pictures: list[Any], logs: Path) -> list[RunResult]:
    with (
        attach(board, "virtual", log_directory=logs) as connection,
        HostDriven(connection, firmware.build(board, [library])) as session,
    ):
        return [session.run(library.name, [picture]) for picture in pictures]


def test_virtual_boards_of_two_makers_agree(tmp_path: Path) -> None:
    """The same library: the same outputs, and instruction counts within 1 %."""
    emulated, modelled = boards.load(_NAME), boards.load("stm32f746")
    assert emulated.target.row == modelled.target.row
    library = compile_model(load(quantize.MODEL), target=modelled.target)
    pictures = [picture[np.newaxis] for picture in quantize.quantized_images(held_out()[0])[:20]]
    results = (_runs(board, library, pictures, tmp_path) for board in (modelled, emulated))
    for actual, reference in zip(*results, strict=True):
        assert actual.outputs[0].tobytes() == reference.outputs[0].tobytes()
        assert actual.unit == reference.unit == "instructions"
        assert reference.count == pytest.approx(actual.count, rel=0.01)
