# SPDX-License-Identifier: Apache-2.0
"""DMA channels and DMAMUX of the STM32L4, L5 and H7: RM0432, 11 and 12; RM0438; RM0433, 16 to 18."""

import pytest

from tests.virtual.test_masters import Chip

DMA1, DMA2, MUX = 0x40020000, 0x40020400, 0x40020800
RAM = {"nucleo-l4r5zi": 0x20002000, "nucleo-l552ze-q": 0x20002000, "nucleo-h743zi": 0x24000000}
CCR, CNDTR, CPAR, CMAR = 0x08, 0x0C, 0x10, 0x14  # of channel 1
EN, TCIE, FROM_MEMORY, CIRC, PINC, MINC, MEM2MEM = 1, 2, 1 << 4, 1 << 5, 1 << 6, 1 << 7, 1 << 14
EXTI13 = 13


def _channel(chip: Chip, channel: int, peripheral: int, memory: int, count: int, control: int) -> None:
    for offset, value in ((CNDTR, count), (CPAR, peripheral), (CMAR, memory), (CCR, control), (CCR, control | EN)):
        chip.put(20 * channel + offset, value)


def test_copy_by_a_channel_takes_time_and_ends() -> None:
    chip = Chip("nucleo-l4r5zi", DMA1)
    chip.machine.write(0x20002000, bytes(range(1, 9)))
    _channel(chip, 2, 0x20002000, 0x20002100, 4, MEM2MEM | PINC | MINC | TCIE | 1 << 8)  # halfwords to bytes
    assert (chip.get(0x00), chip.get(CNDTR + 40)) == (0, 4)
    chip.pass_ticks(32)
    assert chip.get(0x00) == 0x7 << 8  # GIF, TCIF, HTIF
    assert chip.machine.read(0x20002100, 6) == b"\1\3\5\7\0\0"
    assert chip.pends(13)
    assert (chip.get(CCR + 40) & EN, chip.get(CNDTR + 40)) == (EN, 0)
    chip.put(0x04, 1 << 9)  # CTCIF
    assert chip.get(0x00) == 0x5 << 8
    chip.put(0x04, 1 << 8)  # CGIF
    assert chip.get(0x00) == 0


def test_channel_fails_at_a_hole() -> None:
    chip = Chip("nucleo-l4r5zi", DMA2)
    _channel(chip, 0, 0x30000000, 0x20002000, 1, MEM2MEM)
    chip.pass_ticks(8)
    assert chip.get(0x00) == 0x9
    assert not chip.get(CCR) & EN


@pytest.mark.parametrize(
    ("board", "request_number", "usart", "first"),
    [("nucleo-l4r5zi", 29, 0x40004800, 7), ("nucleo-l552ze-q", 30, 0x40004800, 8)],
)
def test_channel_sends_what_the_multiplexer_selects(board: str, request_number: int, usart: int, first: int) -> None:
    chip, output = Chip(board, DMA2), bytearray()
    chip.machine.on_console_output = output.extend
    for offset, value in ((0x0C, 16), (0x08, 1 << 7), (0x00, 1 << 3 | 1)):
        chip.put(usart - DMA2 + offset, value)
    chip.machine.write(RAM[board], b"hello")
    _channel(chip, 1, usart + 0x28, RAM[board], 5, FROM_MEMORY | MINC)
    chip.put(MUX - DMA2 + 4 * (first + 1), request_number + 1)
    assert output == b""
    chip.put(MUX - DMA2 + 4 * (first + 1), request_number)
    for _ in range(5):
        chip.pass_ticks(200)
        chip.get(usart - DMA2 + 0x1C)
    assert output == b"hello"


def test_stream_of_the_h7_gets_requests() -> None:
    chip, output = Chip("nucleo-h743zi", DMA2), bytearray()
    chip.machine.on_console_output = output.extend
    for offset, value in ((0x0C, 16), (0x08, 1 << 7), (0x00, 1 << 3 | 1)):
        chip.put(0x40004800 - DMA2 + offset, value)
    chip.machine.write(0x24000000, b"hello")
    chip.put(MUX - DMA2 + 4 * 9, 46)  # USART3_TX to stream 1
    for offset, value in ((0x04, 5), (0x08, 0x40004828), (0x0C, 0x24000000), (0x00, 1 << 10 | 1 << 6 | 1)):
        chip.put(0x28 + offset, value)
    for _ in range(5):
        chip.pass_ticks(200)
        chip.get(0x40004800 - DMA2 + 0x1C)
    assert output == b"hello"


def _edge_of_pc13(chip: Chip) -> None:
    chip.wire("PC13").drive(True)
    chip.wire("PC13").drive(False)


def _listen_to_pc13(chip: Chip) -> None:
    for address, value in ((0x40010014, 2 << 4), (0x40010408, 1 << 13)):  # EXTICR4, RTSR1
        chip.put(address - chip.base, value)


def test_generator_makes_requests_at_edges() -> None:
    chip = Chip("nucleo-l4r5zi", DMA1)
    _listen_to_pc13(chip)
    chip.machine.write(0x20002000, bytes(range(1, 9)))
    _channel(chip, 0, 0x20002100, 0x20002000, 6, FROM_MEMORY | MINC)
    chip.put(MUX - DMA1, 1)
    chip.put(MUX - DMA1 + 0x100, EXTI13 | 1 << 16 | 1 << 17 | 1 << 19)  # GE, rising, two requests
    _edge_of_pc13(chip)
    assert chip.get(CNDTR) == 4
    chip.put(MUX - DMA1 + 0x100, EXTI13 | 1 << 16 | 2 << 17 | 1 << 19)  # falling: EXTI gives one pulse for either
    _edge_of_pc13(chip)
    assert chip.get(CNDTR) == 2
    chip.put(MUX - DMA1 + 0x100, EXTI13 | 1 << 17)
    _edge_of_pc13(chip)
    assert chip.get(CNDTR) == 2


def test_synchronization_lets_requests_pass() -> None:
    chip, output = Chip("nucleo-l4r5zi", DMA1), bytearray()
    chip.machine.on_console_output = output.extend
    _listen_to_pc13(chip)
    chip.machine.write(0x20002000, b"hello")
    _channel(chip, 0, 0x40004828, 0x20002000, 5, FROM_MEMORY | MINC)
    chip.put(MUX - DMA1, 29 | 1 << 16 | 1 << 17 | 1 << 19 | EXTI13 << 24)  # SE, rising, two requests
    for offset, value in ((0x0C, 16), (0x08, 1 << 7), (0x00, 1 << 3 | 1)):
        chip.put(0x40004800 - DMA1 + offset, value)

    def pass_time() -> None:
        for _ in range(5):
            chip.pass_ticks(200)
            chip.get(0x40004800 - DMA1 + 0x1C)

    pass_time()
    assert output == b""
    for expected in (b"he", b"hell"):
        _edge_of_pc13(chip)
        pass_time()
        assert output == expected


def test_sequence_of_the_adc_is_moved_and_begins_by_a_timer() -> None:
    adc, timer = 0x50040000, 0x40001000
    chip = Chip("nucleo-l4r5zi", DMA1)
    chip.put(adc - DMA1 + 0x30, 2)  # three conversions
    chip.put(adc - DMA1 + 0x0C, 1 | 13 << 6 | 1 << 10)  # DMAEN; TIM6_TRGO, rising
    for value in (1 << 28, 1 << 28 | 1, 1 << 28 | 5):  # ADVREGEN, ADEN, ADSTART
        chip.put(adc - DMA1 + 0x08, value)
    chip.put(MUX - DMA1, 5)
    _channel(chip, 0, adc + 0x40, 0x20002000, 8, MINC | 1 << 8 | 1 << 10)  # halfwords
    assert chip.get(CNDTR) == 8
    for triggers in (1, 2):
        for offset, value in ((0x04, 0x20), (0x14, 1)):  # MMS: update; UG
            chip.put(timer - DMA1 + offset, value)
        for _ in range(3):
            chip.pass_ticks(240)
            chip.get(adc - DMA1 + 0x08)
        assert chip.get(CNDTR) == 8 - 3 * triggers
    assert chip.machine.read(0x20002000, 12) == b"\xff\x07" * 6
    assert chip.get(adc - DMA1) & 8  # EOS


def test_output_of_the_low_power_timer_has_edges() -> None:
    chip = Chip("nucleo-l4r5zi", 0x40007C00)
    output = chip.wire("LPTIM1_OUT")
    output.clear()
    for offset, value in ((0x10, 1), (0x18, 99), (0x14, 49), (0x10, 5)):  # ENABLE; ARR; CMP; CNTSTRT
        chip.put(offset, value)
    steps = 4_000_000 // 32_768
    for _ in range(4):
        chip.pass_ticks(50 * steps)
        chip.get(0x1C)
    assert [edge.level for edge in output.edges()] == [True, False, True, False]
