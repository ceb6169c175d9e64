"""Running models over RPC, without TVM: the part of a MinRPC client that this takes (protocol 0.8.0)."""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from utvm.compiler import Library, Tensor
from utvm.compiler.library import dlpack_code, item_bytes
from utvm.errors import BoardError, ConfigError
from utvm.firmware.inputs import as_bytes
from utvm.runtime import RPC_PROTOCOL
from utvm.session.link import Link
from utvm.session.minrpc import Code, TypeIndex
from utvm.session.rpc_board import RpcBoard
from utvm.session.running import RunResult

_CPU = struct.pack("<ii", 1, 0)
_TIMEOUT = 60.0  # Seconds for whatever is not a run.
_PIECE = 1024  # Bytes of a tensor in one packet.


class RpcError(BoardError):
    """The board refused a request; the message has its words."""


@dataclass(frozen=True)
class _Tensors:
    """A model's name as an argument, and addresses on the board of tensors for its inputs and outputs."""

    name: bytes
    inputs: list[int]
    outputs: list[int]


class RpcSession:
    """A board's RPC server, ready to run the models of its firmware.

    Entering begins a session; leaving ends it.

    Args:
        libraries: what is in the firmware.
        timeout: seconds that one run may take.

    Raises:
        RpcError: the board refuses a request.
        BoardError, TransportError: as :meth:`utvm.session.link.Link.request`.
    """

    way = "RPC"

    def __init__(self, board: RpcBoard, libraries: Sequence[Library], *, timeout: float = 120.0) -> None:
        self.board = board
        self.link: Link | None = None
        self._libraries = {library.name: library for library in libraries}
        self._timeout = timeout
        self._handles: dict[str, int] = {}
        self._tensors: dict[str, _Tensors] = {}
        self._loaded = ""

    def __enter__(self) -> "RpcSession":
        self._begin(self.board.connect())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.link is not None:
            self.link.terminate()

    def reset(self) -> None:
        """Reset the board and begin anew.

        Raises:
            UtvmError: it does not come up, or refuses.
        """
        self._begin(self.board.restart())

    def _begin(self, link: Link) -> None:
        self.link = link
        self._handles.clear()
        self._tensors.clear()
        self._loaded = ""
        version = RPC_PROTOCOL.encode()
        self._ask(Code.INIT_SERVER, struct.pack("<Q", len(version)) + version + struct.pack("<i", 0))

    def run(self, model: str, inputs: Sequence[npt.ArrayLike]) -> RunResult:
        """Run a model once; as :meth:`utvm.session.Session.run`."""
        kept = self._ready(model, inputs)
        self.call("utvm.run", timeout=self._timeout)
        return self._result(model, kept)

    def profile(self, model: str, inputs: Sequence[npt.ArrayLike]) -> tuple[RunResult, tuple[int, ...]]:
        """Run a model once and return what each of its steps took, too, in the result's unit.

        The result's count is larger than that of :meth:`run`: it has in it what keeping the steps' times takes.
        """
        kept = self._ready(model, inputs)
        self.call("utvm.profile", timeout=self._timeout)
        result = self._result(model, kept)
        steps = len(self._libraries[model].calls)
        counts: list[int] = []
        while len(counts) < steps:
            answer = self.call("utvm.step_cycles", struct.pack("<iq", TypeIndex.INTEGER, len(counts)))
            (length,) = struct.unpack_from("<Q", answer, 24)
            counts += struct.unpack_from(f"<{length // 8}Q", answer, 32)
        return result, tuple(counts[:steps])

    def _ready(self, model: str, inputs: Sequence[npt.ArrayLike]) -> _Tensors:
        """Choose a model and give it its inputs; return where its tensors are."""
        if model not in self._libraries:
            raise ConfigError(f"the firmware has no model {model!r}", f"it has: {', '.join(self._libraries)}")
        library = self._libraries[model]
        if model not in self._tensors:
            name = model.encode()
            self._tensors[model] = _Tensors(
                struct.pack("<iQ", TypeIndex.RAW_STRING, len(name)) + name,
                [self.allocate(tensor) for tensor in library.inputs],
                [self.allocate(tensor) for tensor in library.outputs],
            )
        kept = self._tensors[model]
        if model != self._loaded:
            self.call("utvm.load", kept.name)
            self._loaded = model
        given = as_bytes(inputs, library.inputs)
        for number, (data, tensor, address) in enumerate(zip(given, library.inputs, kept.inputs, strict=True)):
            self.write(tensor, address, data)
            self.call("utvm.set_input", struct.pack("<iq", TypeIndex.INTEGER, number), _argument(tensor, address))
        return kept

    def _result(self, model: str, kept: _Tensors) -> RunResult:
        outputs = []
        for number, (tensor, address) in enumerate(zip(self._libraries[model].outputs, kept.outputs, strict=True)):
            self.call("utvm.get_output", struct.pack("<iq", TypeIndex.INTEGER, number), _argument(tensor, address))
            data = self.read(tensor, address)
            outputs.append(np.frombuffer(data, np.dtype(tensor.dtype)).reshape(tensor.shape))
        told = self.stats()
        return RunResult(tuple(outputs), told["cycles"], self.board.unit, told["stack_bytes"])

    def limit_runs(self, milliseconds: int) -> None:
        """Make a run that takes longer a fault, until the session ends; 0 is no limit.

        A virtual board counts instructions at its clock's rate in place of time.
        """
        self.call("utvm.limit", struct.pack("<iq", TypeIndex.INTEGER, milliseconds))

    def stats(self) -> dict[str, Any]:
        """Return what the board has counted; ``docs/rpc.md`` has the fields."""
        answer = self.call("utvm.stats")
        # A number that says "text", then the text behind its type and length.
        (length,) = struct.unpack_from("<Q", answer, 24)
        told: dict[str, Any] = json.loads(answer[32 : 32 + length])
        return told

    def call(self, function: str, *arguments: bytes, timeout: float = _TIMEOUT) -> bytes:
        """Call a function and return the whole answer.

        Args:
            arguments: each encoded, its type first.
            timeout: seconds.
        """
        if function not in self._handles:
            name = function.encode()
            answer = self._ask(Code.GET_FUNCTION, struct.pack("<iiQ", 1, TypeIndex.RAW_STRING, len(name)) + name)
            (handle,) = struct.unpack_from("<Q", answer, 12)
            if not handle:
                raise RpcError(f"the board has no function {function}")
            self._handles[function] = handle
        call = struct.pack("<Qi", self._handles[function], len(arguments)) + b"".join(arguments)
        return self._ask(Code.CALL, call, timeout)

    def allocate(self, tensor: Tensor) -> int:
        """Allocate memory for a tensor on the board and return its address; the session's end frees it."""
        answer = self._ask(
            Code.ALLOCATE_TENSOR, struct.pack("<i", 2) + _argument(tensor, 0) + struct.pack("<i", TypeIndex.NONE)
        )
        (address,) = struct.unpack_from("<Q", answer, 12)
        return int(address)

    def write(self, tensor: Tensor, address: int, data: bytes) -> None:
        """Copy a tensor's bytes to the board."""
        for offset in range(0, len(data), _PIECE):
            piece = data[offset : offset + _PIECE]
            self._ask(Code.COPY_TO, _described(tensor, address, offset) + struct.pack("<Q", len(piece)) + piece)

    def read(self, tensor: Tensor, address: int) -> bytes:
        """Copy a tensor's bytes from the board."""
        data = b""
        while len(data) < tensor.size_bytes:
            size = min(_PIECE, tensor.size_bytes - len(data))
            data += self._ask(Code.COPY_FROM, _described(tensor, address, len(data)) + struct.pack("<Q", size))[4:]
        return data

    def _ask(self, code: int, content: bytes, timeout: float = _TIMEOUT) -> bytes:
        if self.link is None:
            raise RuntimeError("the session has not been entered")
        answer = self.link.request(struct.pack("<i", code) + content, timeout)
        (kind,) = struct.unpack_from("<i", answer)
        if kind == Code.EXCEPTION:
            raise RpcError(answer[20:].decode(errors="replace"))
        if kind not in (Code.RETURN, Code.COPY_ACK):
            raise RpcError(f"the board answered with a packet of kind {kind}")
        return answer


def _described(tensor: Tensor, address: int, offset: int) -> bytes:
    """Return a tensor as a DLTensor on the wire."""
    kind = dlpack_code(tensor.dtype)
    head = struct.pack("<Q", address) + _CPU
    head += struct.pack("<iBBH", len(tensor.shape), kind, 8 * item_bytes(tensor.dtype), 1)
    return head + struct.pack(f"<{len(tensor.shape)}qQ", *tensor.shape, offset)


def _argument(tensor: Tensor, address: int) -> bytes:
    return struct.pack("<i", TypeIndex.TENSOR) + _described(tensor, address, 0)
