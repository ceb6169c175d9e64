# SPDX-License-Identifier: Apache-2.0
"""DMA1 transfers bytes between USART3 and memory, and refuses unsupported modes (RM0385, section 8)."""

from pathlib import Path

import pytest

from tests.virtual.target import RAM, Target
from utvm import boards
from utvm.errors import ConfigError
from utvm.virtual.machine import BoardModel
from utvm.virtual.spec import Peripheral

DMA1, USART3 = 0x40026000, 0x40004800
LISR, LIFCR = DMA1, DMA1 + 0x08
RECEIVE, SEND = DMA1 + 0x10 + 1 * 0x18, DMA1 + 0x10 + 3 * 0x18
CR, NDTR, PAR, M0AR, M1AR, FCR = 0x00, 0x04, 0x08, 0x0C, 0x10, 0x14
EN, TEIE, HTIE, TCIE, CIRC, MINC = 1 << 0, 1 << 2, 1 << 3, 1 << 4, 1 << 8, 1 << 10
FROM_MEMORY, MEMORY_TO_MEMORY, CHANNEL_4 = 1 << 6, 2 << 6, 4 << 25
PFCTRL, PINC, HALFWORDS, RESERVED_SIZE = 1 << 5, 1 << 9, 1 << 11, 3 << 11
DOUBLE_BUFFER, DMDIS = 1 << 18, 1 << 2
TEIF, HTIF, TCIF = 1 << 3, 1 << 4, 1 << 5
OF_RECEIVE, OF_SEND = 6, 22  # where the flags of streams 1 and 3 begin
RDR, TDR = USART3 + 0x24, USART3 + 0x28
HOLE = 0x30000000

# In each program r0 is USART3, and a character takes 100 ticks.
UART = f"""
    handler reset
    ldr r0, ={USART3:#x}
    movs r1, #10
    str r1, [r0, #0x0C]
"""
ON = "ldr r1, =0xC0\nstr r1, [r0, #0x08]\nmovs r1, #0xD\nstr r1, [r0]\n"  # DMAR, DMAT; UE, RE, TE
ENABLE_LINES = "ldr r2, =0xE000E100\nldr r1, =0x5000\nstr r1, [r2]\n"  # 12 and 14
WAIT = "ldr r2, =2000\n1: subs r2, #1\nbne 1b\ndone\n"


def _start(target: Target, stream: int, control: int, count: int, memory: int = RAM) -> None:
    """Set up a stream from the debugger, as in RM0385, 8.3.17."""
    target.poke(stream + PAR, RDR if stream == RECEIVE else TDR)
    target.poke(stream + M0AR, memory)
    target.poke(stream + NDTR, count)
    target.poke(stream + CR, CHANNEL_4 | control)
    target.poke(stream + CR, CHANNEL_4 | control | EN)


def _flags(target: Target, shift: int) -> int:
    return target.peek(LISR) >> shift & 0x3F


def _load(target: Target, program: str, *, then: str = "") -> None:
    """Load, but do not run, a program that enables the USART and waits."""
    target.load(UART + program + ON + WAIT + then)


def _finish(target: Target, typed: bytes = b"") -> None:
    """Run the USART's set-up, type, and run to the end."""
    while not target.peek(USART3) & 1:
        target.step()
    if typed:
        target.machine.console_input(typed)
    target.resume()
    target.wait_for_halt()


def test_memory_is_sent(target: Target) -> None:
    _load(target, "")
    target.machine.write(RAM, b"by itself!")
    _start(target, SEND, MINC | FROM_MEMORY, 9)
    _finish(target)
    assert bytes(target.output) == b"by itself"
    assert target.peek(SEND + NDTR) == 0
    assert not target.peek(SEND + CR) & EN
    assert _flags(target, OF_SEND) == HTIF | TCIF
    target.poke(LIFCR, TCIF << OF_SEND)
    assert _flags(target, OF_SEND) == HTIF


def test_first_byte_is_repeated_without_minc(target: Target) -> None:
    _load(target, "")
    target.machine.write(RAM, b"abc")
    _start(target, SEND, FROM_MEMORY, 3)
    _finish(target)
    assert bytes(target.output) == b"aaa"


def test_received_bytes_are_stored(target: Target) -> None:
    _load(target, "")
    target.machine.write(RAM, b"........")
    _start(target, RECEIVE, MINC, 5)
    _finish(target, b"virtu")
    assert target.machine.read(RAM, 8) == b"virtu..."
    assert _flags(target, OF_RECEIVE) == HTIF | TCIF
    assert target.peek(RECEIVE + NDTR) == 0
    assert not target.peek(USART3 + 0x1C) & 1 << 5  # RDR was read each time


def test_half_transfer_flag_is_set(target: Target) -> None:
    _load(target, "")
    _start(target, RECEIVE, MINC, 6)
    _finish(target, b"abc")
    assert _flags(target, OF_RECEIVE) == HTIF
    assert target.peek(RECEIVE + NDTR) == 3


def test_circular_stream_restarts(target: Target) -> None:
    _load(target, "")
    target.machine.write(RAM, b"........")
    _start(target, RECEIVE, MINC | CIRC, 4)
    _finish(target, b"abcdef")
    assert target.machine.read(RAM, 8) == b"efcd...."
    assert target.peek(RECEIVE + CR) & EN
    assert target.peek(RECEIVE + NDTR) == 2
    assert _flags(target, OF_RECEIVE) == HTIF | TCIF


def test_double_buffers_take_turns(target: Target) -> None:
    _load(target, "")
    target.machine.write(RAM, b"........")
    target.poke(RECEIVE + M1AR, RAM + 4)
    _start(target, RECEIVE, MINC | DOUBLE_BUFFER, 2)
    _finish(target, b"abcde")
    assert target.machine.read(RAM, 8) == b"eb..cd.."
    assert (target.peek(RECEIVE + CR) >> 19 & 1, target.peek(RECEIVE + NDTR)) == (0, 1)


@pytest.mark.parametrize(("enables", "half", "end"), [(HTIE, 1, 0), (TCIE, 0, 1), (HTIE | TCIE, 1, 1), (0, 0, 0)])
def test_enabled_flags_interrupt_on_the_streams_line(target: Target, enables: int, half: int, end: int) -> None:
    handlers = f"""
        handler irq12
        ldr r3, ={LISR:#x}
        ldr r6, [r3]
        str r6, [r3, #8]
        lsrs r6, #{OF_RECEIVE}
        tst r6, #{HTIF}
        it ne
        addne r4, #1
        tst r6, #{TCIF}
        it ne
        addne r5, #1
        bx lr
    """
    _load(target, "movs r4, #0\nmovs r5, #0\n" + ENABLE_LINES, then=handlers)
    _start(target, RECEIVE, MINC | enables, 4)
    _finish(target, b"four")
    # A flag without an interrupt is seen with the next one.
    seen_half = half or (end and not half)
    assert (target.register(4), target.register(5)) == (seen_half, end)


def test_end_of_transfer_wakes_a_sleeping_core(target: Target) -> None:
    program = UART + ENABLE_LINES + ON + "movs r5, #0\nwfi\ndone\nhandler irq14\nadds r5, #1\n"
    target.load(program + f"ldr r3, ={LIFCR:#x}\nldr r6, ={0x3D << OF_SEND:#x}\nstr r6, [r3]\nbx lr\n")
    target.machine.write(RAM, b"z" * 100)
    _start(target, SEND, MINC | FROM_MEMORY | TCIE, 100)
    before = target.machine.instructions
    target.resume()
    target.wait_for_halt()
    assert target.register(5) == 1
    assert target.machine.instructions - before < 40
    assert len(target.output) >= 98  # the last ones are in TDR and in the shift register


def test_unmapped_memory_is_a_transfer_error(target: Target) -> None:
    _load(
        target,
        ENABLE_LINES + "movs r5, #0\n",
        then=f"handler irq14\nmovs r5, #1\nldr r3, =0x40026008\nldr r6, ={0x3D << OF_SEND:#x}\nstr r6, [r3]\nbx lr\n",
    )
    _start(target, SEND, MINC | FROM_MEMORY, 4, memory=HOLE)
    _start(target, RECEIVE, MINC, 4, memory=RAM)
    target.poke(SEND + CR, target.peek(SEND + CR) | TEIE)
    _finish(target, b"ok")
    assert target.register(5) == 1
    assert not target.peek(SEND + CR) & EN
    assert target.peek(SEND + NDTR) == 4
    assert bytes(target.output) == b""
    assert target.machine.read(RAM, 2) == b"ok"  # the other stream goes on


def test_unmapped_peripheral_is_a_transfer_error(target: Target) -> None:
    _load(target, "")
    target.poke(SEND + PAR, HOLE)
    target.poke(SEND + M0AR, RAM)
    target.poke(SEND + NDTR, 1)
    target.poke(SEND + CR, CHANNEL_4 | FROM_MEMORY | EN)
    _finish(target)
    assert _flags(target, OF_SEND) == TEIF


@pytest.mark.parametrize("control", [MEMORY_TO_MEMORY, 3 << 6, PFCTRL, RESERVED_SIZE])
def test_unmodelled_mode_does_not_start(target: Target, control: int) -> None:
    _load(target, "")
    _start(target, RECEIVE, MINC | control, 4)
    assert _flags(target, OF_RECEIVE) == TEIF
    assert not target.peek(RECEIVE + CR) & EN


def test_memory_is_copied_to_memory(target: Target) -> None:
    target.load(UART + "done")
    target.machine.write(RAM, b"0123456789")
    target.poke(RECEIVE + FCR, 0x21 | DMDIS)
    target.poke(RECEIVE + PAR, RAM)
    target.poke(RECEIVE + M0AR, RAM + 0x100)
    target.poke(RECEIVE + NDTR, 5)
    target.poke(RECEIVE + CR, MEMORY_TO_MEMORY | PINC | MINC | HALFWORDS | EN)
    assert target.machine.read(RAM + 0x100, 12) == bytes(12)
    assert _flags(target, OF_RECEIVE) == 0
    target.machine._cpu._slept += 40  # an item takes eight ticks
    assert _flags(target, OF_RECEIVE) == TCIF | HTIF
    assert target.machine.read(RAM + 0x100, 12) == b"0123456789\0\0"
    assert _flags(target, OF_RECEIVE) == TCIF | HTIF
    assert not target.peek(RECEIVE + CR) & EN


def test_stream_starts_only_with_cleared_flags(target: Target) -> None:
    _load(target, "")
    target.machine.write(RAM, b"ab")
    _start(target, SEND, MINC | FROM_MEMORY, 2)
    _finish(target)
    target.poke(SEND + CR, CHANNEL_4 | MINC | FROM_MEMORY | EN)
    assert not target.peek(SEND + CR) & EN
    target.poke(LIFCR, 0x3D << OF_SEND)
    target.poke(SEND + CR, CHANNEL_4 | MINC | FROM_MEMORY | EN)
    assert bytes(target.output) == b"aba"  # NDTR is reloaded with EN, and the line is idle
    assert target.peek(SEND + NDTR) == 0


def test_registers_of_an_enabled_stream_are_read_only(target: Target) -> None:
    target.load(UART + "done")
    _start(target, RECEIVE, MINC, 4)
    for register in (NDTR, PAR, M0AR):
        target.poke(RECEIVE + register, 0x1234)
    target.poke(RECEIVE + FCR, 0x21 | DMDIS)
    target.poke(RECEIVE + CR, EN | TCIE)
    assert [target.peek(RECEIVE + register) for register in (NDTR, PAR, M0AR, FCR)] == [4, RDR, RAM, 0x21]
    assert target.peek(RECEIVE + CR) == CHANNEL_4 | MINC | TCIE | EN
    target.poke(RECEIVE + CR, 0)
    assert target.peek(RECEIVE + CR) == CHANNEL_4 | MINC
    assert _flags(target, OF_RECEIVE) == TCIF  # the end of an aborted transfer (RM0385, 8.3.14)


def test_registers_accept_words_only(target: Target) -> None:
    target.load(UART + "done")
    target.machine.write(RECEIVE + NDTR, b"\x07")
    target.machine.write(RECEIVE + NDTR, b"\x07\x07")
    assert target.peek(RECEIVE + NDTR) == 0


def test_request_of_another_channel_is_ignored(target: Target) -> None:
    _load(target, "")
    _start(target, SEND, MINC | FROM_MEMORY | 1 << 25, 4)  # channel 5
    assert target.peek(SEND + CR) >> 25 == 5
    _finish(target)
    assert bytes(target.output) == b""
    assert target.peek(SEND + NDTR) == 4


@pytest.mark.parametrize(("direction", "sent", "received"), [(1 << 6, b"", b"in"), (1 << 7, b"out", b"\0\0")])
def test_usart_requests_only_enabled_directions(target: Target, direction: int, sent: bytes, received: bytes) -> None:
    target.load(UART + ON.replace("0xC0", str(direction)) + WAIT)
    target.machine.write(RAM, b"out\0\0")
    _start(target, SEND, MINC | FROM_MEMORY, 3)
    _start(target, RECEIVE, MINC, 2, memory=RAM + 3)
    _finish(target, b"in")
    assert bytes(target.output) == sent
    assert target.machine.read(RAM + 3, 2) == received


def test_both_directions_run_in_parallel(target: Target) -> None:
    _load(target, "")
    target.machine.write(RAM, b"from memory")
    _start(target, SEND, MINC | FROM_MEMORY, 11)
    _start(target, RECEIVE, MINC, 9, memory=RAM + 32)
    _finish(target, b"to memory")
    assert bytes(target.output) == b"from memory"
    assert target.machine.read(RAM + 32, 9) == b"to memory"


DWT = 0xE0001000


def test_runs_take_equal_counts(tmp_path: Path) -> None:
    program = (
        UART
        + ENABLE_LINES
        + ON
        + f"""
        movs r7, #0
        ldr r2, ={SEND:#x}
        1: adds r7, #1
        ldr r1, [r2, #4]        @ NDTR
        cmp r1, #0
        bne 1b
        done
        handler irq14
        ldr r3, ={LIFCR:#x}
        ldr r6, ={0x3D << OF_SEND:#x}
        str r6, [r3]
        bx lr
    """
    )
    counts = []
    for _ in range(2):
        with Target(tmp_path) as target:
            target.load(program)
            target.machine.write(RAM, bytes(50))
            _start(target, SEND, MINC | FROM_MEMORY | HTIE | TCIE, 50)
            target.poke(DWT, 1)  # CYCCNT also counts time in polling loops
            before = target.machine.instructions
            target.resume()
            target.wait_for_halt()
            counts.append((target.machine.instructions - before, target.peek(DWT + 4), target.register(7)))
    assert counts[0] == counts[1]
    # 48 characters are sent until the last byte is in TDR; a round is four instructions.
    assert 48 * 100 <= counts[0][1] <= 48 * 100 + 40


def test_controller_needs_a_line_for_each_stream() -> None:
    spec = boards.load("stm32f746").machine_spec()
    dma = Peripheral(model="stm32f7-dma", address=DMA1, irqs=(1, 2))
    with pytest.raises(ConfigError, match="needs irqs: 8 numbers, one per stream"):
        BoardModel(spec.model_copy(update={"peripherals": (dma,)}))
