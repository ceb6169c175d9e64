# SPDX-License-Identifier: Apache-2.0
"""The host-driven executor: runs a model through the debug port only."""

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from utvm import compiler, drivers, errors
from utvm.firmware import Firmware
from utvm.firmware.inputs import as_bytes
from utvm.session import diagnosis, fault, running

_TURN = "utvm_host_turn"
_GO = "utvm_host_go"  # After the instruction at the breakpoint: resuming here saves stepping off it.
_FAULT_STOP = "utvm_fault_stop"
_START_TIMEOUT = 30.0  # Seconds from reset to the first request.
# utvm_reply_t: runs, status, cycles, stack_used, interrupts
_REPLY = struct.Struct("<IiQII")


class HostDriven:
    """Runs the models of a firmware on a board; ``timeout`` is in seconds per run.

    Entering flashes the firmware unless the board holds it already, resets the board and waits for start-up.
    Firmware built for RAM is loaded after every reset instead. Leaving removes the breakpoints.
    """

    executor = "host-driven"

    def __init__(self, connection: drivers.Connection, firmware: Firmware, *, timeout: float = 120.0) -> None:
        self.connection = connection
        self.firmware = firmware
        self._timeout = timeout
        self._runs = 0

    def __enter__(self) -> "HostDriven":
        if not self.firmware.in_ram:
            self.connection.program(self.firmware)
        self.reset()
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.clear_breakpoints()

    def reset(self) -> None:
        """Reset the board and wait until its program waits for the first request."""
        if self.firmware.in_ram:
            # RAM contents may have changed: data does, and a faulty program may write anywhere.
            self.connection.program(self.firmware)
        else:
            self.connection.reset(halt=True)
        self.connection.clear_breakpoints()
        for symbol in (_TURN, _FAULT_STOP):
            self.connection.insert_breakpoint(self.firmware.symbols[symbol])
        self._runs = 0
        self._run_until_waiting("come up after reset", _START_TIMEOUT)

    @property
    def waiting(self) -> bool:
        return self.connection.gdb.read_register("pc") == self._symbol(_TURN)

    def run(self, model: str, inputs: Sequence[npt.ArrayLike]) -> running.RunResult:
        index = self.firmware.program_index(model)
        library = self.firmware.libraries[index]
        for number, data in enumerate(as_bytes(inputs, library.inputs)):
            if data:
                self.connection.write_memory(self.firmware.input_address(library, number), data)
        cycles, stack_used = self._request(index, model)
        outputs = tuple(
            self._read_tensor(self.firmware.output_address(library, number), tensor)
            for number, tensor in enumerate(library.outputs)
        )
        return running.RunResult(outputs, cycles, self.connection.count_unit, stack_used)

    def forget(self, model: str) -> None:
        running.check_has_state(self.firmware.libraries, model)
        name = f"{model}_reset"
        self._request(self.firmware.program_index(name), name)

    def _request(self, index: int, model: str) -> tuple[int, int]:
        self.connection.write_memory(self._symbol("utvm_request"), struct.pack("<I", index))
        self.connection.gdb.write_register("pc", self._symbol(_GO))
        self._run_until_waiting(f"finish model {model}", self._timeout)
        reply = self.connection.read_memory(self._symbol("utvm_reply"), _REPLY.size)
        runs, status, cycles, stack_used, _interrupts = _REPLY.unpack(reply)
        # Without these checks, stale outputs of an earlier run could pass for the reply.
        if runs == self._runs:
            raise errors.BoardError(
                f"{self.firmware.board.name} stopped before it had run model {model}",
                "does another debugger use the board?",
            )
        if runs != self._runs + 1:
            raise errors.BoardError(
                f"{self.firmware.board.name} was reset while it ran model {model}",
                "is its power stable, or does something else reset it?",
            )
        self._runs = runs
        if status != 0:
            raise running.model_error(model, status)
        return cycles, stack_used

    def _symbol(self, name: str) -> int:
        return self.firmware.symbols[name]

    def _read_tensor(self, address: int, tensor: compiler.Tensor) -> npt.NDArray[np.generic]:
        size = tensor.size_bytes
        data = self.connection.read_memory(address, size) if size else b""
        return np.frombuffer(data, dtype=np.dtype(tensor.dtype)).reshape(tensor.shape)

    def _run_until_waiting(self, purpose: str, timeout: float) -> None:
        pc = self.connection.run_until_stop(timeout)
        if pc == self._symbol(_TURN):
            return
        record = fault.FaultRecord.parse(
            self.connection.read_memory(self._symbol("utvm_fault"), fault.RECORD_SIZE), self.firmware.board.architecture
        )
        if record is not None:
            stack = self.connection.read_memory(record.stack, record.stack_bytes) if record.stack_bytes else b""
            raise diagnosis.explain(self.firmware, record, stack)
        raise errors.BoardError(
            f"{self.firmware.board.name} did not {purpose} (waited for up to {timeout:g} s); "
            f"it is at {pc:#010x} {self.firmware.source_line(pc)}".rstrip()
        )
