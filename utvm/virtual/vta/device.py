# SPDX-License-Identifier: Apache-2.0
"""VTA as a device of a board: it accesses registers and memory like the hardware.

:class:`VtaModel` works beside an emulator; :func:`make_device` adds it to the bus of a virtual board.
"""

import ctypes
import mmap
import struct
from collections.abc import Sequence

from utvm.errors import BoardError
from utvm.runtime.vta.configuration import Configuration, ConfigurationFile
from utvm.runtime.vta.instructions import INSTRUCTION_BYTES
from utvm.virtual.bus import Bus, BusError, Device
from utvm.virtual.spec import Peripheral
from utvm.virtual.vta.simulator import VtaFault, VtaSimulator
from utvm.virtual.wiring import TargetMemory, Wiring

_PAGE = 4096
_CONTROL = {"fetch": 0x01, "load": 0x81, "compute": 0x81, "store": 0x81}
"""Control register of each block when VTA is started, in the order of their pages."""
_FETCH_COUNT, _FETCH_ADDRESS = 0x10, 0x18
_STATUS = 2 * _PAGE + 0x18
_DONE, _FAILED = 1, 2
# Page and offset of the register with each memory's base address.
_BASES = {"UOP": (2, 0x20), "WGT": (1, 0x18), "INP": (1, 0x10), "ACC": (2, 0x28), "OUT": (3, 0x10)}
_FAULT = 4 * _PAGE
_FAULT_RECORD = struct.Struct("<i4xqq96s")
REGISTER_BYTES = 5 * _PAGE
"""The pages of the four blocks, and a page for the fault record of a model."""
_LAST_CONTROL = 3 * _PAGE  # the driver writes it last: VTA starts
_MAX_INSTRUCTIONS = 65536


class VtaModel:
    """A VTA with registers and DRAM in the board's memory.

    ``registers`` is their address; ``memory`` has address and size of each region that VTA can access.
    """

    symbol = "utvm_accelerator_rung"

    def __init__(self, configuration: Configuration, registers: int, memory: Sequence[tuple[int, int]]) -> None:
        self._simulator = VtaSimulator(configuration, alone=True)
        self._numbers = {name: configuration.memories[name].number for name in _BASES}
        self._registers = registers
        self._bitstream = ""
        self._dram = [_Region(address, size) for address, size in memory]

    def program(self, bitstream: str) -> None:
        """Load a bitstream into the logic; without one, VTA does not exist."""
        self._bitstream = bitstream

    def serve(self, board: TargetMemory) -> None:
        """Run the instructions that the registers point to, and write the status."""
        pages = [board.read_memory(self._registers + _PAGE * page, 0x30) for page in range(len(_CONTROL))]
        fault = self._check(pages)
        if fault is None:
            try:
                fault = self._run(board, pages)
            except BoardError as error:
                fault = VtaFault(error.message, 0)
        if fault is not None:
            record = _FAULT_RECORD.pack(fault.number, fault.value, fault.limit, fault.rule.encode())
            board.write_memory(self._registers + _FAULT, record)
        board.write_memory(self._registers + _STATUS, struct.pack("<I", _FAILED if fault else _DONE))

    def _check(self, pages: Sequence[bytes]) -> VtaFault | None:
        if not self._bitstream:
            return VtaFault("the logic is empty: board.program-fpga", 0)
        for (name, expected), page in zip(_CONTROL.items(), pages, strict=True):
            if _word(page, 0) != expected:
                return VtaFault(f"block {name}: unexpected value in the control register", 0, _word(page, 0), expected)
        count = _word(pages[0], _FETCH_COUNT)
        if not 0 < count <= _MAX_INSTRUCTIONS:
            return VtaFault("number of instructions out of range", 0, count, _MAX_INSTRUCTIONS)
        return None

    def _run(self, board: TargetMemory, pages: Sequence[bytes]) -> VtaFault | None:
        count, address = _word(pages[0], _FETCH_COUNT), _word(pages[0], _FETCH_ADDRESS)
        for name, (page, offset) in _BASES.items():
            self._simulator.set_base(self._numbers[name], _word(pages[page], offset))
        for region in self._dram:
            region.invalidate()

        def translate(first: int, size: int) -> int:
            return next((region.fetch(board, first, size) for region in self._dram if region.contains(first, size)), 0)

        fault = self._simulator.run_on(board.read_memory(address, count * INSTRUCTION_BYTES), translate)
        for region in self._dram:
            region.write_back(board)
        return fault


class _Region:
    """A region of the board's memory, copied to this process by page on demand."""

    def __init__(self, address: int, size: int) -> None:
        self._address = address
        # The kernel allocates pages on first use.
        self._bytes = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._host_address = ctypes.addressof(ctypes.c_char.from_buffer(self._bytes))
        self._size = size
        self._pages: dict[int, bytes] = {}

    def contains(self, address: int, size: int) -> bool:
        return self._address <= address and address + size <= self._address + self._size

    def invalidate(self) -> None:
        """Drop all copies: the board's program has run since."""
        self._pages.clear()

    def fetch(self, board: TargetMemory, address: int, size: int) -> int:
        """Copy the bytes from the board and return their address in this process."""
        first = address - self._address
        for page in range(first // _PAGE * _PAGE, first + size, _PAGE):
            if page not in self._pages:
                length = min(_PAGE, self._size - page)
                self._pages[page] = board.read_memory(self._address + page, length)
                self._bytes[page : page + length] = self._pages[page]
        return self._host_address + first

    def write_back(self, board: TargetMemory) -> None:
        """Write changed pages to the board."""
        for page, original in self._pages.items():
            current = self._bytes[page : page + len(original)]
            if current != original:
                board.write_memory(self._address + page, current)


def _word(page: bytes, offset: int) -> int:
    return int.from_bytes(page[offset : offset + 4], "little")


def vta_peripheral(configuration: Configuration, address: int) -> Peripheral:
    """VTA as a peripheral of a virtual board's specification."""
    sizes = {key: value for key, value in configuration.file.model_dump().items() if isinstance(value, int)}
    return Peripheral(model=f"{__name__}:make_device", address=address, settings=sizes)


def make_device(peripheral: Peripheral, wiring: Wiring) -> Device:
    """Create the device of a :func:`vta_peripheral`."""
    file = ConfigurationFile.model_validate({"TARGET": "sim", "HW_VER": "", **peripheral.settings})
    return _VtaDevice(Configuration(file), peripheral.address, wiring)


class _VtaDevice(Device):
    """The registers of VTA. It starts with the last block and finishes before the next instruction."""

    size = REGISTER_BYTES

    def __init__(self, configuration: Configuration, address: int, wiring: Wiring) -> None:
        memory = [(memory.start, memory.region.size) for memory in wiring.bus.memories]
        self._model = VtaModel(configuration, address, memory)
        self._logic = wiring.logic
        self._memory = _BusMemory(wiring.bus)
        self.reset()

    def reset(self) -> None:
        self._words = [0] * (self.size // 4)

    def load(self, offset: int) -> int:
        return self._words[offset // 4]

    def store(self, offset: int, value: int, lanes: int) -> None:
        self._words[offset // 4] = self._words[offset // 4] & ~lanes | value
        if offset == _LAST_CONTROL and value:
            self._model.program(self._logic())
            self._model.serve(self._memory)


class _BusMemory:
    _HINT = "VTA uses the address given by its driver; is this board running the library built for it?"

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def read_memory(self, address: int, size: int) -> bytes:
        with BoardError.on(BusError, f"VTA cannot read {address:#x}: no device or memory there", self._HINT):
            return self._bus.read(address, size)

    def write_memory(self, address: int, data: bytes) -> None:
        with BoardError.on(BusError, f"VTA cannot write {address:#x}: no device or memory there", self._HINT):
            self._bus.write(address, data)
