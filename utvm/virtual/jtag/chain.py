# SPDX-License-Identifier: Apache-2.0
"""A chain of test access ports, and its pins on a socket. See ``chain.c``."""

import ctypes
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm.errors import ConfigError
from utvm.virtual.compiled import load_compiled

_log = logging.getLogger(__name__)
_TAPS = 4
_INSTRUCTIONS = 64
STREAM, TOLD = 255, 254
"""In place of a length: what is shifted in is handed on 64 bits at a time; and the instruction itself is."""
_CAPTURE = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
_UPDATE = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64)
_RESET = ctypes.CFUNCTYPE(None)


@dataclass(frozen=True)
class Tap:
    """A test access port.

    Attributes:
        instruction_bits: width of its instruction register.
        idcode_instruction: the instruction that stands after a reset, with IDCODE behind it.
        registers: bits of the further data registers, by instruction, or STREAM or TOLD; any other is BYPASS.
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
        ("streamed", ctypes.c_uint32),
        ("shifted", ctypes.c_uint64),
        ("lengths", ctypes.c_uint8 * _INSTRUCTIONS),
    )


class _ChainState(ctypes.Structure):
    _fields_ = (
        ("capture", _CAPTURE),
        ("update", _UPDATE),
        ("reset", _RESET),
        ("taps", ctypes.c_uint32),
        ("tap", _TapState * _TAPS),
        ("state", ctypes.c_uint32),
        ("clock", ctypes.c_uint32),
        ("tdo", ctypes.c_uint32),
        ("left", ctypes.c_uint32),
    )


class BitbangServer:
    """Serves the pins of a chain on a Unix socket, which takes less than TCP; one client at a time.

    Args:
        taps: the one at TDO first.
        reset: what the system's reset line does, once it is pulled.

    Attributes:
        path: of the socket, in a folder of its own, which :meth:`close` removes.
    """

    def __init__(self, taps: Sequence[Tap], reset: Callable[[], None]) -> None:
        self._c = load_compiled(Path(__file__).with_name("chain.c"))
        self._c.utvm_bitbang.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self._state = _ChainState(
            _CAPTURE(lambda tap, register: taps[tap].capture(register)),
            _UPDATE(lambda tap, register, value: taps[tap].update(register, value)),
            _RESET(reset),
            len(taps),
        )
        for state, tap in zip(self._state.tap, taps, strict=False):
            state.instruction_bits, state.idcode = tap.instruction_bits, tap.idcode
            state.instruction = state.idcode_instruction = tap.idcode_instruction
            state.bits = 1
            for instruction, bits in tap.registers.items():
                state.lengths[instruction] = bits
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="utvm-")
            self.path: str = f"{self._folder.name}/pins"
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(self.path)
        except OSError as error:
            raise ConfigError(
                f"no socket can be made for the pins: {error}", "set TMPDIR to a short path on a disk with room"
            ) from error
        self._listener.listen()

    def serve(self) -> None:
        """Serve clients until :meth:`close`."""
        while True:
            try:
                client, _peer = self._listener.accept()
            except OSError:
                return
            with client:
                error = self._c.utvm_bitbang(ctypes.byref(self._state), client.fileno())
                if error:
                    _log.info("the client left: %s", os.strerror(error))

    def close(self) -> None:
        """Stop accepting clients."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._folder.cleanup()
