# SPDX-License-Identifier: Apache-2.0
"""The host-driven executor on the virtual board, through OpenOCD."""

from collections.abc import Iterator

import numpy as np
import pytest

from hil_tests.programs import handwritten
from utvm import boards, firmware
from utvm.compiler import Library
from utvm.drivers import Connection, attach
from utvm.errors import BoardError, ConfigError
from utvm.session import DeviceFault, HostDriven

ONES = np.ones(4, dtype=np.int32)

LIBRARIES = [
    handwritten("doubler", "  for (int i = 0; i < 4; i++) { y[i] = 2 * x[i]; }\n  return 0;"),
    handwritten("refuser", "  return 7;"),
    # SYSRESETREQ: ARM DDI 0403E, B3.2.6
    handwritten("resetter", "  *(volatile uint32_t *)0xE000ED0C = 0x05FA0004;\n  for (;;) { }"),
    handwritten("sleeper", "  for (;;) { }"),
    handwritten("trespasser", "  y[0] = *(const volatile int32_t *)0x60000000;\n  return 0;"),
    handwritten(
        "adder",
        "  const int32_t *z = inputs[1];\n  int32_t *w = outputs[1];\n"
        "  for (int i = 0; i < 4; i++) { y[i] = x[i] + z[i]; w[i] = x[i] - z[i]; }\n  return 0;",
        inputs=2,
        outputs=2,
    ),
    handwritten(
        "digger",
        "  extern int32_t digger_deeper(int32_t n);\n  return digger_deeper(x[0]);\n}\n"
        "int32_t digger_deeper(int32_t n);\n"
        "__attribute__((noinline)) int32_t digger_deeper(int32_t n) {\n"
        "  volatile uint8_t room[512];\n  room[n & 511] = 0;\n"
        # The read after the call keeps the compiler from making a loop of it.
        "  return n > 0 ? digger_deeper(n - 1) + room[n & 511] : 0;",
    ),
]


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    board = boards.load("stm32f746")
    with attach(board, "virtual", log_directory=tmp_path_factory.mktemp("logs")) as connection:
        yield connection


@pytest.fixture
def session(connection: Connection) -> Iterator[HostDriven]:
    with HostDriven(connection, firmware.build(connection.board, LIBRARIES), timeout=5) as session:
        yield session


@pytest.mark.slow
def test_outputs_and_counts_repeat_exactly(session: HostDriven) -> None:
    x = np.array([1, -2, 0, 2**30 - 1], dtype=np.int32)
    first = session.run("doubler", [x])
    np.testing.assert_array_equal(first.outputs[0], 2 * x)
    assert first.unit == "instructions"
    # Four multiplications with loads and stores: more than twenty instructions, far fewer than a thousand.
    assert 20 < first.count < 1000
    second = session.run("doubler", [x])
    assert (second.count, second.outputs[0].tolist()) == (first.count, first.outputs[0].tolist())
    session.reset()
    assert session.run("doubler", [x]).count == first.count


def test_model_with_several_inputs_and_outputs_runs(session: HostDriven) -> None:
    result = session.run("adder", [3 * ONES, ONES])
    np.testing.assert_array_equal(result.outputs[0], 4 * ONES)
    np.testing.assert_array_equal(result.outputs[1], 2 * ONES)


def test_error_code_of_the_model_is_an_error(session: HostDriven) -> None:
    with pytest.raises(BoardError, match="refuser returned error code 7"):
        session.run("refuser", [ONES])
    session.run("doubler", [ONES])


@pytest.mark.slow
def test_endless_model_is_stopped_and_located(connection: Connection) -> None:
    with HostDriven(connection, firmware.build(connection.board, LIBRARIES), timeout=1) as session:
        with pytest.raises(
            BoardError, match=r"did not finish model sleeper \(waited for up to 1 s\); it is at .*sleeper_run at"
        ):
            session.run("sleeper", [ONES])
        session.reset()
        np.testing.assert_array_equal(session.run("doubler", [ONES]).outputs[0], 2 * ONES)


def test_reset_in_a_run_gives_no_stale_output(session: HostDriven) -> None:
    session.run("doubler", [ONES])
    with pytest.raises(BoardError, match="was reset while it ran model resetter"):
        session.run("resetter", [ONES])
    session.reset()
    np.testing.assert_array_equal(session.run("doubler", [3 * ONES]).outputs[0], 6 * ONES)


def test_bad_access_is_a_device_fault_with_its_source_line(session: HostDriven) -> None:
    with pytest.raises(DeviceFault) as caught:
        session.run("trespasser", [ONES])
    assert caught.value.record.meaning.name == "BusFault"
    assert caught.value.record.meaning.address == 0x6000_0000
    assert "trespasser_run" in caught.value.source_line
    session.reset()
    session.run("doubler", [ONES])


def test_stack_use_is_reported_and_an_overflow_is_a_fault(session: HostDriven) -> None:
    shallow = session.run("digger", [1 * ONES]).stack_used
    deep = session.run("digger", [8 * ONES]).stack_used
    # Seven more frames, of slightly more than 512 bytes.
    assert 7 * 512 <= deep - shallow <= 7 * 600
    with pytest.raises(DeviceFault) as caught:
        session.run("digger", [200 * ONES])
    assert caught.value.record.pc is None
    flags = caught.value.record.meaning.flags
    assert any(flag.startswith(("STKERR", "PRECISERR")) for flag in flags)
    session.reset()
    session.run("doubler", [ONES])


@pytest.mark.parametrize(
    "inputs", [[], [ONES, ONES], [np.ones(3, np.int32)], [np.ones(4)], [np.ones((4, 1), np.int32)]]
)
def test_inputs_must_fit_the_models(session: HostDriven, inputs: list[np.ndarray]) -> None:
    with pytest.raises(ConfigError):
        session.run("doubler", inputs)


@pytest.mark.slow
def test_unchanged_firmware_is_not_written_again(connection: Connection, doubler: Library) -> None:
    image = firmware.build(connection.board, [doubler])
    # Programming erases whole sectors: bytes behind the image in its sector survive only without programming.
    address, marker = connection.board.region("flash").address + 0x7F00, b"left alone"
    connection.gdb.flash([*image.segments, (address, marker)])
    connection.program(image)
    assert connection.read_memory(address, len(marker)) == marker
    connection.program(firmware.build(connection.board, LIBRARIES))
    assert connection.read_memory(address, len(marker)) == b"\xff" * len(marker)
