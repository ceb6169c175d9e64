# SPDX-License-Identifier: Apache-2.0
"""The model of VTA on the bus of a virtual board: it is written to, and reads and writes memory by itself."""

from utvm.errors import BoardError
from utvm.runtime.vta.configuration import Configuration, ConfigurationFile
from utvm.virtual.bus import Bus, BusError, Device
from utvm.virtual.spec import Peripheral
from utvm.virtual.surroundings import Surroundings
from utvm.virtual.vta.neighbour import REGISTER_BYTES, STARTS_LAST, VtaNeighbour

_WHERE = "it is where its driver says: was that started by the library for this board?"


def on_bus(configuration: Configuration, address: int) -> Peripheral:
    """Return the peripheral that a virtual board is told of."""
    sizes = {key: value for key, value in configuration.file.model_dump().items() if isinstance(value, int)}
    return Peripheral(model=f"{__name__}:made", address=address, settings=sizes)


def made(peripheral: Peripheral, around: Surroundings) -> Device:
    """Make the device that a peripheral is."""
    file = ConfigurationFile.model_validate({"TARGET": "sim", "HW_VER": "", **peripheral.settings})
    return _Vta(Configuration(file), peripheral.address, around)


class _Vta(Device):
    """The registers; VTA runs when its last block is started, and is done before the next instruction."""

    size = REGISTER_BYTES

    def __init__(self, configuration: Configuration, address: int, around: Surroundings) -> None:
        memory = [(each.start, each.region.size) for each in around.bus.memories]
        self._model = VtaNeighbour(configuration, address, memory)
        self._logic = around.logic
        self._reach = _Reach(around.bus)
        self.reset()

    def reset(self) -> None:
        self._words = [0] * (self.size // 4)

    def load(self, offset: int) -> int:
        return self._words[offset // 4]

    def store(self, offset: int, value: int, lanes: int) -> None:
        self._words[offset // 4] = self._words[offset // 4] & ~lanes | value
        if offset == STARTS_LAST and value:
            self._model.program(self._logic())
            self._model.attend(self._reach)


class _Reach:
    """The bus, as who stands beside a board reaches its memory."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def read_memory(self, address: int, size: int) -> bytes:
        try:
            return self._bus.read(address, size)
        except BusError as error:
            raise BoardError("nobody answers where VTA reads", _WHERE) from error

    def write_memory(self, address: int, data: bytes) -> None:
        try:
            self._bus.write(address, data)
        except BusError as error:
            raise BoardError("nobody takes what VTA writes", _WHERE) from error
