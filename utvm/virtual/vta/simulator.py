# SPDX-License-Identifier: Apache-2.0
"""The model of VTA in this process: compiled once for each configuration, loaded, asked what happened in it."""

import ctypes
import functools
import platform
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from utvm.base.process.run import run_tool
from utvm.base.storage.cache import Cache, content_key
from utvm.errors import BoardError, ToolchainError
from utvm.runtime.vta.configuration import Configuration
from utvm.runtime.vta.header import DRIVER, INCLUDE, config_header, symbol
from utvm.runtime.vta.instructions import INSTRUCTION_BYTES, InstructionSet, explain_fault
from utvm.virtual.vta import MODEL

STAGES = ("load", "compute", "store")
COUNTERS = (
    "inp_load_nbytes",
    "wgt_load_nbytes",
    "acc_load_nbytes",
    "uop_load_nbytes",
    "out_store_nbytes",
    "gemm_counter",
    "alu_counter",
)
"""The statistics of TVM's own simulator, under their names there."""

_HERE = Path(__file__).resolve().parent
_SOURCES = (*DRIVER, *MODEL)
_HEADERS = (*sorted(INCLUDE.glob("*.h")), *sorted(_HERE.glob("*.h")))
# Symbols of one library never stand for those of another, although all are visible to whatever is loaded later.
_FLAGS = ("-std=c99", "-O3", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC", "-Wl,-Bsymbolic")


_REACH = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t)


class _Instruction(ctypes.Structure):
    _fields_ = (("words", ctypes.c_uint64 * 2),)


class _Fault(ctypes.Structure):
    _fields_ = (
        ("rule", ctypes.c_char_p),
        ("value", ctypes.c_int64),
        ("limit", ctypes.c_int64),
        ("number", ctypes.c_int32),
        ("instruction", _Instruction),
    )


class VtaStatistics(ctypes.Structure):
    """``vta_statistics`` of the model's C."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in COUNTERS),
        ("instructions", ctypes.c_uint64),
        ("dram_nbytes", ctypes.c_uint64),
        ("cycles", ctypes.c_uint64),
        ("busy", ctypes.c_uint64 * len(STAGES)),
        ("tokens", ctypes.c_uint64),
    )


class _Event(ctypes.Structure):
    _fields_ = (
        ("ready", ctypes.c_uint64),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("instruction", _Instruction),
    )


@dataclass(frozen=True)
class Refusal:
    """What went wrong in a run.

    Attributes:
        rule: what should have been; ``value`` and ``limit`` are what was compared.
        number: of the instruction; -1 where it is about no single one.
    """

    rule: str
    number: int
    value: int = 0
    limit: int = 0


@dataclass(frozen=True)
class Event:
    """What one instruction of the last run did; times are modelled cycles.

    Attributes:
        stage: which of :data:`STAGES` ran it.
        ready: when that was done with its instruction before.
        start: when it had its tokens, so that it waited from ``ready`` on.
        line: the instruction, disassembled.
    """

    stage: str
    ready: int
    start: int
    end: int
    line: str


class VtaSimulator:
    """A VTA in this process.

    There is one of each configuration (see :func:`simulator`), as there is one accelerator: it runs one program at
    a time.

    Args:
        alone: it is another one, with memories of its own, and no compiled operator finds it.
    """

    def __init__(self, configuration: Configuration, *, alone: bool = False) -> None:
        self.configuration = configuration
        self.instructions = InstructionSet(configuration)
        self._library = _loaded(_compiled(configuration), alone)
        self._library.vta_sim_statistics.restype = ctypes.POINTER(VtaStatistics)
        self._library.vta_sim_events.restype = ctypes.POINTER(_Event)
        self._library.vta_device_map.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._library.vta_device_map.restype = ctypes.c_uint32
        self._synchronize = getattr(self._library, symbol("VTASynchronize", configuration))
        self._fault = getattr(self._library, symbol("VTAFault", configuration))
        self._fault.restype = ctypes.POINTER(_Fault)

    def synchronize(self) -> None:
        """Run what operators have queued, and wait for it."""
        if self._synchronize() != 0:
            raise self._explained(self._fault().contents)

    def run(self, instructions: bytes, memory: "ctypes.Array[ctypes.c_uint8]") -> int:
        """Run instructions that were written by hand.

        Args:
            instructions: to the last, which is FINISH.
            memory: all of DRAM that they may use; it begins at :data:`DRAM`.
        """
        queue = ctypes.create_string_buffer(instructions, len(instructions))
        fault = _Fault()
        self._library.vta_device_map(memory, ctypes.sizeof(memory))
        try:
            code: int = self._library.vta_device_run(
                queue, len(instructions) // INSTRUCTION_BYTES, ctypes.byref(fault)
            )
        finally:
            self._library.vta_device_unmap()
        if code != 0:
            raise self._explained(fault)
        return code

    def count_from(self, memory: int, address: int) -> None:
        """Set from where on in DRAM a memory's elements are counted, for programs that were written elsewhere."""
        self._library.vta_device_base(memory, address)

    def run_on(self, instructions: bytes, reach: Callable[[int, int], int]) -> Refusal | None:
        """Run instructions on memory that is elsewhere; return what went wrong.

        Args:
            reach: returns where bytes of DRAM are in this process, given their address and number; 0 if nowhere.
        """
        trouble: list[Exception] = []

        def reached(address: int, size: int) -> int:
            try:
                return reach(address, size)
            except Exception as error:  # C cannot pass it on
                trouble.append(error)
                return 0

        queue, fault, called = ctypes.create_string_buffer(instructions), _Fault(), _REACH(reached)
        self._library.vta_sim_dram_is(called)
        count = len(instructions) // INSTRUCTION_BYTES
        code = self._library.vta_device_run(queue, count, ctypes.byref(fault))
        if trouble:
            raise trouble[0]
        rule = (fault.rule or b"").decode()
        return Refusal(rule, fault.number, fault.value, fault.limit) if code else None

    def statistics(self) -> dict[str, int]:
        """Return what was counted since :meth:`clear`: the :data:`COUNTERS` of TVM's own simulator, instructions,
        bytes to and from DRAM, tokens that were handed on, and, under names that say so, modelled cycles in all
        and of each stage.
        """
        return in_words(self._library.vta_sim_statistics().contents)

    def clear(self) -> None:
        """Begin to count anew."""
        ctypes.memset(self._library.vta_sim_statistics(), 0, ctypes.sizeof(VtaStatistics))

    def events(self) -> list[Event]:
        """Return what each instruction of the last run did when, in the order in which they were queued."""
        count = ctypes.c_uint32()
        events = self._library.vta_sim_events(ctypes.byref(count))
        return [self._event(events[number]) for number in range(count.value)]

    def look_first_after(self, stage: str) -> None:
        """Have a stage run ahead of the others as far as its tokens let it: no result may depend on which."""
        self._library.vta_sim_first_stage(STAGES.index(stage))

    def _event(self, event: _Event) -> Event:
        kind, values = self.instructions.decode(bytes(event.instruction))
        line = self.instructions.disassemble(bytes(event.instruction))
        early = kind == "load" and values["mem"] in (1, 2)
        stage = "load" if early else "store" if kind == "store" else "compute"
        return Event(stage, event.ready, event.start, event.end, line)

    def _explained(self, fault: _Fault) -> BoardError:
        rule, raw = (fault.rule or b"").decode(), bytes(fault.instruction)
        return BoardError(explain_fault(self.instructions, fault.number, raw, rule, fault.value, fault.limit))


def in_words(counted: VtaStatistics) -> dict[str, int]:
    """Return statistics by name."""
    plain = (*COUNTERS, "instructions", "dram_nbytes", "tokens")
    busy = {f"modelled_{stage}_cycles": int(counted.busy[number]) for number, stage in enumerate(STAGES)}
    return {
        **{name: int(getattr(counted, name)) for name in plain},
        "modelled_cycles": int(counted.cycles),
        **busy,
    }


DRAM = 65536
"""Where DRAM begins, in bytes, for programs that were written by hand."""


@functools.cache
def simulator(configuration: Configuration) -> VtaSimulator:
    """Return this process's VTA of a configuration; raises as :class:`Simulator`."""
    return VtaSimulator(configuration)


def _loaded(library: Path, alone: bool) -> ctypes.CDLL:
    if not alone:
        # Compiled operators look for the driver's calls among what the process has.
        return ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    # A library is loaded once, unless it is another file.
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(str(shutil.copy(library, folder)), ctypes.RTLD_LOCAL)


def _compiled(configuration: Configuration) -> Path:
    """Return the driver and the model as one shared library, compiling it where that was not done before."""
    header = config_header(configuration)
    name = "libvta.so"

    def compile_it(directory: Path) -> None:
        (directory / "vta_config.h").write_text(header, encoding="utf-8")
        folders = (f"-I{folder}" for folder in (directory, INCLUDE, _HERE))
        run_tool(
            ["gcc", *_FLAGS, *folders, "-o", directory / name, *_SOURCES],
            error=ToolchainError,
            hint="the model of VTA needs a C compiler for this machine: apt install gcc libc6-dev",
        )

    texts = (path.read_text(encoding="utf-8") for path in (*_SOURCES, *_HEADERS))
    key = content_key(header, *texts, " ".join(_FLAGS), platform.machine(), platform.libc_ver()[1])
    return Cache("virtual").fetch(key, compile_it) / name
