# SPDX-License-Identifier: Apache-2.0
"""The model of VTA in this process: compiled once for each configuration, then loaded."""

import ctypes
import functools
import itertools
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from utvm.errors import BoardError
from utvm.runtime.vta.configuration import Configuration
from utvm.runtime.vta.header import DRIVER, INCLUDE, config_header, symbol
from utvm.runtime.vta.instructions import INSTRUCTION_BYTES, InstructionSet, explain_fault
from utvm.virtual import native, vta

STAGES = ("load", "compute", "store")
# The first seven are those of TVM's own simulator, under the names used there.
_COUNTERS = (
    "inp_load_nbytes wgt_load_nbytes acc_load_nbytes uop_load_nbytes out_store_nbytes gemm_counter alu_counter "
    "instructions dram_nbytes"
)

_HERE = Path(__file__).resolve().parent
# With -Bsymbolic, a library uses its own symbols, although all are visible to libraries that are loaded later.
_SYMBOLIC = "-Wl,-Bsymbolic"

_REACH = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t)


class _Instruction(ctypes.Structure):
    _fields_ = (("words", ctypes.c_uint64 * 2),)


class _Fault(ctypes.Structure):
    _fields_ = (
        ("rule", ctypes.c_char_p),
        *native.fields(ctypes.c_int64, "value limit"),
        ("number", ctypes.c_int32),
        ("instruction", _Instruction),
    )


class _Statistics(ctypes.Structure):
    """``vta_statistics`` of ``simulator.h``."""

    _fields_ = (
        *native.fields(ctypes.c_uint64, f"{_COUNTERS} cycles"),
        ("busy", ctypes.c_uint64 * len(STAGES)),
        ("tokens", ctypes.c_uint64),
    )


class _Event(ctypes.Structure):
    _fields_ = (*native.fields(ctypes.c_uint64, "ready start end"), ("instruction", _Instruction))


@dataclass(frozen=True)
class VtaFault:
    """A violated rule, with the instruction's index, -1 for the whole run, and the numbers compared, or 0."""

    rule: str
    number: int
    value: int = 0
    limit: int = 0


@dataclass(frozen=True)
class Event:
    """One instruction of the last run; times are modelled cycles.

    Attributes:
        stage: one of :data:`STAGES`.
        ready: end of the stage's previous instruction.
        start: end of the wait for its tokens.
        line: disassembly of the instruction.
    """

    stage: str
    ready: int
    start: int
    end: int
    line: str


class VtaSimulator:
    """A VTA in this process, for one program at a time: private if ``alone``, else that of compiled operators."""

    def __init__(self, configuration: Configuration, *, alone: bool = False) -> None:
        self.configuration = configuration
        self.instructions = InstructionSet(configuration)
        self._library = _load(configuration, alone)
        self._library.vta_sim_statistics.restype = ctypes.POINTER(_Statistics)
        self._library.vta_sim_events.restype = ctypes.POINTER(_Event)
        self._library.vta_device_map.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._library.vta_device_map.restype = ctypes.c_uint32
        self._synchronize = getattr(self._library, symbol("VTASynchronize", configuration))
        self._fault = getattr(self._library, symbol("VTAFault", configuration))
        self._fault.restype = ctypes.POINTER(_Fault)

    def synchronize(self) -> None:
        """Run the queued instructions and wait for their end."""
        if self._synchronize() != 0:
            raise self._error(self._fault().contents)

    def run(self, instructions: bytes, memory: "ctypes.Array[ctypes.c_uint8]") -> int:
        """Run instructions, up to and including FINISH, on a DRAM that begins at :data:`DRAM`."""
        queue = ctypes.create_string_buffer(instructions, len(instructions))
        fault = _Fault()
        self._library.vta_device_map(memory, ctypes.sizeof(memory))
        try:
            code: int = self._library.vta_device_run(queue, len(instructions) // INSTRUCTION_BYTES, ctypes.byref(fault))
        finally:
            self._library.vta_device_unmap()
        if code != 0:
            raise self._error(fault)
        return code

    def set_base(self, memory: int, address: int) -> None:
        """Set the DRAM address of a memory's element 0."""
        self._library.vta_device_base(memory, address)

    def run_on(self, instructions: bytes, translate: Callable[[int, int], int]) -> VtaFault | None:
        """Run instructions on a board's memory and return the fault, if any.

        ``translate`` maps an address and size in DRAM to an address in this process, or 0.
        """
        errors: list[Exception] = []

        def translate_or_fail(address: int, size: int) -> int:
            try:
                return translate(address, size)
            except Exception as error:  # an exception cannot pass through C
                errors.append(error)
                return 0

        queue, fault, callback = ctypes.create_string_buffer(instructions), _Fault(), _REACH(translate_or_fail)
        self._library.vta_sim_dram_is(callback)
        count = len(instructions) // INSTRUCTION_BYTES
        code = self._library.vta_device_run(queue, count, ctypes.byref(fault))
        if errors:
            raise errors[0]
        rule = (fault.rule or b"").decode()
        return VtaFault(rule, fault.number, fault.value, fault.limit) if code else None

    def statistics(self) -> dict[str, int]:
        """Counts since :meth:`clear`: the counters of TVM's own simulator, instructions, bytes to and from DRAM,
        tokens passed between stages, and modelled cycles in total and per stage.
        """
        return _by_name(self._library.vta_sim_statistics().contents)

    def clear(self) -> None:
        """Reset the statistics."""
        ctypes.memset(self._library.vta_sim_statistics(), 0, ctypes.sizeof(_Statistics))

    def events(self) -> list[Event]:
        """The instructions of the last run, in queue order."""
        count = ctypes.c_uint32()
        events = self._library.vta_sim_events(ctypes.byref(count))
        return [self._event(events[number]) for number in range(count.value)]

    def look_first_after(self, stage: str) -> None:
        """Run this stage first whenever its tokens allow it. The order must not affect results."""
        self._library.vta_sim_first_stage(STAGES.index(stage))

    def _event(self, event: _Event) -> Event:
        kind, values = self.instructions.decode(bytes(event.instruction))
        line = self.instructions.disassemble(bytes(event.instruction))
        early = kind == "load" and values["mem"] in (1, 2)
        stage = "load" if early else "store" if kind == "store" else "compute"
        return Event(stage, event.ready, event.start, event.end, line)

    def _error(self, fault: _Fault) -> BoardError:
        rule, raw = (fault.rule or b"").decode(), bytes(fault.instruction)
        return BoardError(explain_fault(self.instructions, fault.number, raw, rule, fault.value, fault.limit))


def _by_name(statistics: _Statistics) -> dict[str, int]:
    busy = {f"modelled_{stage}_cycles": int(statistics.busy[number]) for number, stage in enumerate(STAGES)}
    counts = {name: int(getattr(statistics, name)) for name in f"{_COUNTERS} tokens".split()}
    return {**counts, "modelled_cycles": int(statistics.cycles), **busy}


DRAM = 65536
"""Start address of the DRAM of :meth:`VtaSimulator.run`."""


@functools.cache
def simulator(configuration: Configuration) -> VtaSimulator:
    """The shared VTA of a configuration in this process."""
    return VtaSimulator(configuration)


def _load(configuration: Configuration, alone: bool) -> ctypes.CDLL:
    library = native.cached_library(
        "libvta.so",
        (*DRIVER, *vta.MODEL),
        ("-O3", *native.WARNINGS, _SYMBOLIC),
        (INCLUDE, _HERE),
        {"vta_config.h": config_header(configuration)},
    )
    if not alone:
        # Compiled operators look up the driver's functions among all symbols of the process.
        return ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    # The loader maps a file once; a copy gets its own memories.
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(str(shutil.copy(library, folder)), ctypes.RTLD_LOCAL)


_STEP_FLAGS = ("-O2", "-ffp-contract=off", "-DUTVM_STEPS=1", _SYMBOLIC)
_ALIGNMENT = 16
_STEPS = _HERE / "steps"


def modelled_steps(
    configuration: Configuration,
    sources: Mapping[str, str],
    run: str,
    steps: int,
    sizes: tuple[Sequence[int], Sequence[int], Sequence[int]],
) -> list[dict[str, int]]:
    """Return the statistics of each step of a library, with the names of :meth:`VtaSimulator.statistics`.

    The library, given by its C files, function ``run`` and number of steps, runs on the host, on zeros: VTA's work
    does not depend on the data. ``sizes`` are in bytes, of its inputs, outputs and workspaces.
    """
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for name, text in {**sources, "vta_config.h": config_header(configuration)}.items():
            (work / name).write_text(text, encoding="utf-8")
        output = work / "steps.so"
        files = (*sorted(work.glob("*.c")), _STEPS / "steps.c", *DRIVER, *vta.MODEL)
        flags = (*_STEP_FLAGS, f"-DVTA_STEPS={steps}")
        native.compile_library(output, files, flags, (work, INCLUDE, _HERE, _STEPS), libraries=("-lm",))
        library = ctypes.CDLL(str(output))
    buffers = [[ctypes.create_string_buffer(size + _ALIGNMENT) for size in group] for group in sizes]
    inputs, outputs, workspaces = (
        [-(-ctypes.addressof(buffer) // _ALIGNMENT) * _ALIGNMENT for buffer in group] for group in buffers
    )
    pointers = ((ctypes.c_void_p * max(len(group), 1))(*group) for group in (inputs, outputs))
    getattr(library, run)(*pointers, *map(ctypes.c_void_p, workspaces))
    library.vta_sim_step(steps)
    counts = [_by_name(record) for record in (_Statistics * (steps + 1)).in_dll(library, "vta_sim_steps")]
    return [{name: after[name] - before[name] for name in after} for before, after in itertools.pairwise(counts)]
