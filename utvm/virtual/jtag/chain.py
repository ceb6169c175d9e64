# SPDX-License-Identifier: Apache-2.0
"""A chain of test access ports, and its pins on TCP. See ``chain.c``."""

import ctypes
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm.virtual.compiled import load_compiled

_log = logging.getLogger(__name__)
_TAPS = 4
_CHUNK = 1 << 16
_CAPTURE = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
_UPDATE = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64)
_LENGTH = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)
_RESET = ctypes.CFUNCTYPE(None)


@dataclass(frozen=True)
class Tap:
    """A test access port.

    Attributes:
        instruction_bits: width of its instruction register.
        idcode_instruction: the instruction that stands after a reset, with IDCODE behind it.
        registers: bits of the further data registers, by instruction; any other instruction is BYPASS.
        capture: returns what a data register shows.
        update: takes what was shifted into one.
    """

    instruction_bits: int
    idcode: int
    idcode_instruction: int
    registers: Mapping[int, int]
    capture: Callable[[int], int]
    update: Callable[[int, int], None]


class _TapState(ctypes.Structure):
    _fields_ = (
        ("instruction_bits", ctypes.c_uint32),
        ("idcode", ctypes.c_uint32),
        ("idcode_instruction", ctypes.c_uint32),
        ("instruction", ctypes.c_uint32),
        ("bits", ctypes.c_uint32),
        ("shifted", ctypes.c_uint64),
    )


class _ChainState(ctypes.Structure):
    _fields_ = (
        ("capture", _CAPTURE),
        ("update", _UPDATE),
        ("length", _LENGTH),
        ("reset", _RESET),
        ("taps", ctypes.c_uint32),
        ("tap", _TapState * _TAPS),
        ("state", ctypes.c_uint32),
        ("clock", ctypes.c_uint32),
        ("tdo", ctypes.c_uint32),
        ("left", ctypes.c_uint32),
    )

    left: int


class BitbangServer:
    """Serves the pins of a chain on the loopback interface, one client at a time.

    Args:
        taps: the one at TDO first.
        reset: what the system's reset line does, once it is pulled.
        port: TCP port, 0 for any free one.

    Raises:
        OSError: the port is taken.
        ToolchainError: the C part cannot be compiled.
    """

    def __init__(self, taps: Sequence[Tap], reset: Callable[[], None], port: int = 0) -> None:
        self._c = load_compiled(Path(__file__).with_name("chain.c"))
        self._c.utvm_bitbang.restype = ctypes.c_size_t
        self._c.utvm_bitbang.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]
        self._state = _ChainState(
            _CAPTURE(lambda tap, register: taps[tap].capture(register)),
            _UPDATE(lambda tap, register, value: taps[tap].update(register, value)),
            _LENGTH(lambda tap, register: taps[tap].registers.get(register, 0)),
            _RESET(reset),
            len(taps),
        )
        for state, tap in zip(self._state.tap, taps, strict=False):
            state.instruction_bits, state.idcode = tap.instruction_bits, tap.idcode
            state.instruction = state.idcode_instruction = tap.idcode_instruction
            state.bits = 1
        self._answers = ctypes.create_string_buffer(_CHUNK)
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Serve clients until :meth:`close`."""
        while True:
            try:
                client, _peer = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with client:
                try:
                    self._talk(client)
                except OSError as error:
                    _log.info("the client left: %s", error)

    def close(self) -> None:
        """Stop accepting clients."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _talk(self, client: socket.socket) -> None:
        self._state.left = 0
        while not self._state.left and (data := client.recv(_CHUNK)):
            answered = self._c.utvm_bitbang(ctypes.byref(self._state), data, len(data), self._answers)
            if answered:
                client.sendall(memoryview(self._answers)[:answered])
