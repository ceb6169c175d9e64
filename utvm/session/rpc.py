# SPDX-License-Identifier: Apache-2.0
"""Runs models over RPC without TVM: the necessary part of a MinRPC client (protocol 0.8.0)."""

import contextlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm import compiler, drivers, errors, runtime
from utvm.compiler.library import dlpack_code, item_bytes
from utvm.firmware import Firmware
from utvm.firmware.inputs import as_bytes
from utvm.session import diagnosis, pipes, running
from utvm.session.fault import RECORD_SIZE, FaultRecord
from utvm.session.link import BoardFaulted, Link
from utvm.session.minrpc import Code, TypeIndex, code_of
from utvm.session.transport import Transport
from utvm.virtual.spec import WAITS

# Text or bytes reply: code, count and type as an integer, then the type again and the length; the data follows.
_HEAD = struct.Struct("<20siQ")
_STATISTICS = b'{"board": '


class UnitCorrection:
    """Corrects the units in a board's replies; its firmware assumes ``clock_hz`` counts per second.

    ``log`` is called with a message for each evaluation on a virtual board.
    """

    def __init__(self, unit: str, clock_hz: int, log: Callable[[str], None] | None = None) -> None:
        self._unit = unit
        self._clock_hz = clock_hz
        self._log = log or (lambda _line: None)

    def answer(self, packet: bytes, answer: bytes) -> bytes:
        """Correct the units in the reply to a packet."""
        if self._unit == "cycles" or code_of(packet) != Code.CALL or len(answer) < _HEAD.size:
            return answer
        head, kind, _ = _HEAD.unpack_from(answer)
        content = answer[_HEAD.size :]
        (handle,) = struct.unpack_from("<Q", packet, 4)
        evaluator = runtime.RPC_EVALUATOR_HANDLE <= handle < runtime.RPC_EVALUATOR_HANDLE + runtime.RPC_EVALUATORS
        if kind == TypeIndex.RAW_STRING and content.startswith(_STATISTICS):
            content = content.replace(b'"cycles": ', b'"%s": ' % self._unit.encode())
        elif kind == TypeIndex.RAW_BYTES and evaluator and self._unit == "instructions":
            content = self._instructions(content)
        else:
            return answer
        return _HEAD.pack(head, kind, len(content)) + content

    def _instructions(self, seconds: bytes) -> bytes:
        # Rounded, but far more precise than the fractions of a mean need.
        counts = [round(value * self._clock_hz, 6) for (value,) in struct.iter_unpack("<d", seconds)]
        text = ", ".join(f"{count:,.10g}" for count in counts)
        self._log(
            f"time_evaluator: {text} instructions of a VIRTUAL board, which has no time; "
            "the client is told a second for each"
        )
        return struct.pack(f"<{len(counts)}d", *counts)


@dataclass(frozen=True)
class RpcBoard:
    """A board with a running RPC server.

    Attributes:
        unit: unit of its counter: ``instructions``, ``cycles`` or ``ns``.
        connect: starts a session.
        restart: resets the board and starts a session.
        check: raises ProbeError if a process that the board needs has died for good.
        program_logic: as for its connection; None without programmable logic.
        count_waits: makes a virtual board count all cycles (0), or one kind of ``WAITS`` (from 1).
    """

    description: str
    unit: str
    connect: Callable[[], Link]
    restart: Callable[[], Link]
    check: Callable[[], None]
    program_logic: Callable[[Path], object] | None = None
    count_waits: Callable[[int], None] | None = None


class _FirmwareLink(Link):
    """A link that decodes faults and corrects units for its firmware and board."""

    def __init__(
        self, transport: Transport, on_log: Callable[[str], None] | None, firmware: Firmware, unit: str
    ) -> None:
        timeouts = firmware.board.timeouts
        super().__init__(transport, start_timeout=timeouts.start, resend_after=timeouts.resend, on_log=on_log)
        self._firmware = firmware
        self._units = UnitCorrection(unit, firmware.board.clock_hz, on_log)

    def request(self, packet: bytes, timeout: float) -> bytes:
        try:
            return self._units.answer(packet, super().request(packet, timeout))
        except BoardFaulted as fault:
            record = FaultRecord.parse(fault.record_bytes, self._firmware.board.architecture)
            if record is None:
                raise
            raise diagnosis.explain(self._firmware, record, fault.record_bytes[RECORD_SIZE:]) from fault


@contextlib.contextmanager
def start_rpc(
    connection: drivers.Connection, firmware: Firmware, on_log: Callable[[str], None] | None = None
) -> Iterator[RpcBoard]:
    """Flash a firmware built for RPC and start it; ``on_log`` receives the board's log messages."""
    with pipes.open_pipe(connection, firmware) as wire:
        connection.program(firmware)

        def connect() -> Link:
            link = _FirmwareLink(wire.transport, on_log, firmware, connection.count_unit)
            link.start()
            return link

        def restart() -> Link:
            wire.restart()
            return connect()

        wire.restart()
        # A board without a debug port has only one byte stream, so it is not named.
        channel = f", RPC through {firmware.pipe}" if connection.has_debug_port else ""
        description = connection.describe() + channel
        program_logic = connection.program_logic if connection.board.logic else None
        is_modelled = connection.count_unit == "modelled cycles"

        def count_waits(number: int) -> None:
            connection.write_memory(connection.board.selected_wait, struct.pack("<I", number))

        waits = count_waits if is_modelled else None
        yield RpcBoard(description, connection.count_unit, connect, restart, connection.check, program_logic, waits)


_CPU = struct.pack("<ii", 1, 0)
_TIMEOUT = 60.0  # Seconds per request other than a run.
_PIECE = 1920  # Bytes of a tensor per packet; the rest is for headers.
_RESULT = 24  # Offset of the return value in a reply: after code, count, type as an integer, and type.
_OTHER_FIRMWARE = "is its firmware of another version? Build and flash it again"


class RpcError(errors.BoardError):
    """The board rejected a request; the message is the board's."""


class RpcSession:
    """A session with a board's RPC server, to run the models of its firmware; ``timeout`` is in seconds per run.

    Entering starts a session; leaving ends it.
    """

    executor = "RPC"

    def __init__(self, board: RpcBoard, libraries: Sequence[compiler.Library], *, timeout: float = 120.0) -> None:
        self.board = board
        self.link: Link | None = None
        self._libraries = {library.name: library for library in libraries}
        self._timeout = timeout
        self._handles: dict[str, int] = {}
        self._stacks: dict[str, int] = {}
        self._loaded = ""

    def __enter__(self) -> "RpcSession":
        self._begin(self.board.connect())
        return self

    def __exit__(self, *_: object) -> None:
        if self.link is not None:
            self.link.terminate()

    def reset(self) -> None:
        """Reset the board and start a new session."""
        self._begin(self.board.restart())

    @property
    def waiting(self) -> bool:
        """True if a session is active: the board accepts requests at any time."""
        return self.link is not None

    def _begin(self, link: Link) -> None:
        self.link = link
        self._handles.clear()
        self._stacks.clear()
        self._loaded = ""
        version = runtime.RPC_PROTOCOL.encode()
        self._ask(Code.INIT_SERVER, struct.pack("<Q", len(version)) + version + struct.pack("<i", 0))

    def run(self, model: str, inputs: Sequence[npt.ArrayLike]) -> running.RunResult:
        """Run a model once; as :meth:`utvm.session.Session.run`.

        ``stack_used`` is the maximum up to the model's first run; :meth:`stats` has the current one.
        """
        library = self._prepare(model, inputs)
        answer = self.call("utvm.run", timeout=self._timeout)
        (cycles,) = struct.unpack_from("<Q", answer, _RESULT)
        return self._result(library, cycles)

    def profile(self, model: str, inputs: Sequence[npt.ArrayLike]) -> tuple[running.RunResult, tuple[int, ...]]:
        """Run a model once and return the result and the cost of each step, in the result's unit.

        The total is larger than that of :meth:`run`: it includes recording the steps.
        """
        library = self._prepare(model, inputs)
        self.call("utvm.profile", timeout=self._timeout)
        result = self._result(library, self.stats()[self.board.unit])
        steps = len(library.calls)
        counts: list[int] = []
        while len(counts) < steps:
            data = _bytes_in(self.call("utvm.step_cycles", _integer(len(counts))))
            counts += struct.unpack(f"<{len(data) // 8}Q", data)
        return result, tuple(counts[:steps])

    def profile_waits(self, model: str, inputs: Sequence[npt.ArrayLike]) -> Mapping[str, Sequence[int]]:
        """Run a model once for each of :data:`~utvm.virtual.spec.WAITS`; return the cycles that each step waited.

        Empty unless the board models cycles.
        """
        select = self.board.count_waits
        waits: dict[str, Sequence[int]] = {}
        for number, name in enumerate(WAITS, 1):
            if select:
                select(number)
                _, waits[name] = self.profile(model, inputs)
                select(0)
        return waits

    def _prepare(self, model: str, inputs: Sequence[npt.ArrayLike]) -> compiler.Library:
        if model not in self._libraries:
            raise errors.ConfigError(f"the firmware has no model {model!r}", f"it has: {', '.join(self._libraries)}")
        library = self._libraries[model]
        self._load(model)
        for number, data in enumerate(as_bytes(inputs, library.inputs)):
            for offset in range(0, len(data), _PIECE):
                piece = data[offset : offset + _PIECE]
                content = struct.pack("<iQ", TypeIndex.RAW_BYTES, len(piece)) + piece
                self.call("utvm.put", _integer(number), _integer(offset), content)
        return library

    def forget(self, model: str) -> None:
        running.check_has_state(list(self._libraries.values()), model)
        self._load(f"{model}_reset")
        self.call("utvm.run")

    def _load(self, program: str) -> None:
        if program != self._loaded:
            name = program.encode()
            self.call("utvm.load", struct.pack("<iQ", TypeIndex.RAW_STRING, len(name)) + name)
            self._loaded = program

    def _result(self, library: compiler.Library, cycles: int) -> running.RunResult:
        outputs = []
        for number, tensor in enumerate(library.outputs):
            data = b""
            while len(data) < tensor.size_bytes:
                size = min(_PIECE, tensor.size_bytes - len(data))
                data += _bytes_in(self.call("utvm.take", _integer(number), _integer(len(data)), _integer(size)))
            outputs.append(np.frombuffer(data, np.dtype(tensor.dtype)).reshape(tensor.shape))
        if library.name not in self._stacks:
            self._stacks[library.name] = self.stats()["stack_bytes"]
        return running.RunResult(tuple(outputs), cycles, self.board.unit, self._stacks[library.name])

    def limit_runs(self, milliseconds: int) -> None:
        """Make longer runs fault until the session ends; 0 for no limit. Virtual boards count instructions."""
        self.call("utvm.limit", _integer(milliseconds))

    def stats(self) -> dict[str, Any]:
        """Return the board's statistics; ``docs/rpc.md`` lists the fields."""
        stats: dict[str, Any] = json.loads(_bytes_in(self.call("utvm.stats")))
        return stats

    def call(self, function: str, *arguments: bytes, timeout: float = _TIMEOUT) -> bytes:
        """Call a function with encoded arguments (type first) and return the whole reply."""
        if function not in self._handles:
            name = function.encode()
            answer = self._ask(Code.GET_FUNCTION, struct.pack("<iiQ", 1, TypeIndex.RAW_STRING, len(name)) + name)
            (handle,) = struct.unpack_from("<Q", answer, 12)
            if not handle:
                raise RpcError(f"the board has no function {function}", _OTHER_FIRMWARE)
            self._handles[function] = handle
        call = struct.pack("<Qi", self._handles[function], len(arguments)) + b"".join(arguments)
        return self._ask(Code.CALL, call, timeout)

    def allocate(self, tensor: compiler.Tensor) -> int:
        """Allocate memory for a tensor on the board and return its address; freed at the end of the session."""
        request = struct.pack("<ii", 2, TypeIndex.TENSOR) + _dl_tensor(tensor, 0, 0) + struct.pack("<i", TypeIndex.NONE)
        answer = self._ask(Code.ALLOCATE_TENSOR, request)
        (address,) = struct.unpack_from("<Q", answer, 12)
        return int(address)

    def write(self, tensor: compiler.Tensor, address: int, data: bytes) -> None:
        """Copy a tensor's bytes to the board."""
        for offset in range(0, len(data), _PIECE):
            piece = data[offset : offset + _PIECE]
            self._ask(Code.COPY_TO, _dl_tensor(tensor, address, offset) + struct.pack("<Q", len(piece)) + piece)

    def read(self, tensor: compiler.Tensor, address: int) -> bytes:
        """Copy a tensor's bytes from the board."""
        data = b""
        while len(data) < tensor.size_bytes:
            size = min(_PIECE, tensor.size_bytes - len(data))
            data += self._ask(Code.COPY_FROM, _dl_tensor(tensor, address, len(data)) + struct.pack("<Q", size))[4:]
        return data

    def _ask(self, code: int, content: bytes, timeout: float = _TIMEOUT) -> bytes:
        if self.link is None:
            raise RuntimeError("the session has not been entered")
        answer = self.link.request(struct.pack("<i", code) + content, timeout)
        (kind,) = struct.unpack_from("<i", answer)
        if kind == Code.EXCEPTION:
            raise RpcError(answer[20:].decode(errors="replace"))
        if kind not in (Code.RETURN, Code.COPY_ACK):
            raise RpcError(f"the board answered with a packet of kind {kind}", _OTHER_FIRMWARE)
        return answer


def _integer(number: int) -> bytes:
    return struct.pack("<iq", TypeIndex.INTEGER, number)


def _bytes_in(answer: bytes) -> bytes:
    (length,) = struct.unpack_from("<Q", answer, _RESULT)
    return answer[_RESULT + 8 : _RESULT + 8 + length]


def _dl_tensor(tensor: compiler.Tensor, address: int, offset: int) -> bytes:
    kind = dlpack_code(tensor.dtype)
    head = struct.pack("<Q", address) + _CPU
    head += struct.pack("<iBBH", len(tensor.shape), kind, 8 * item_bytes(tensor.dtype), 1)
    return head + struct.pack(f"<{len(tensor.shape)}qQ", *tensor.shape, offset)
