# SPDX-License-Identifier: Apache-2.0
"""What VTA's model counts in each step of a library: on this computer, whatever board the library is for.

What VTA does depends on no number that it computes with, so a run on zeros says all.
"""

import ctypes
import itertools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from utvm.base.process.run import run_tool
from utvm.errors import ToolchainError
from utvm.runtime.vta.configuration import Configuration
from utvm.runtime.vta.header import DRIVER, INCLUDE, config_header
from utvm.virtual.vta import MODEL
from utvm.virtual.vta.simulator import VtaStatistics, in_words

_FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-DUTVM_STEPS=1", "-shared", "-fPIC", "-Wl,-Bsymbolic")
_ALIGNMENT = 16
_HOOK = """#include <stdint.h>
void vta_sim_step(uint32_t number);
#define UTVM_STEP(number) vta_sim_step(number);
"""
_NOTES = """#include "simulator.h"
void vta_sim_step(uint32_t number);
vta_statistics vta_sim_steps[{steps} + 1];
void vta_sim_step(uint32_t number) {{
    vta_sim_steps[number] = *vta_sim_statistics();
}}
"""


def modelled_steps(
    configuration: Configuration,
    sources: Mapping[str, str],
    run: str,
    steps: int,
    sizes: tuple[Sequence[int], Sequence[int], Sequence[int]],
) -> list[dict[str, int]]:
    """Return for each step what it counts, as :meth:`utvm.virtual.vta.simulator.Simulator.statistics`.

    Args:
        sources: the library's files, by name.
        run: its function.
        steps: how many steps that has.
        sizes: bytes of its inputs, of its outputs and of its working memories.
    """
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        own = {"vta_config.h": config_header(configuration), "utvm_step.h": _HOOK}
        for name, text in {**sources, **own, "vta_sim_step.c": _NOTES.format(steps=steps)}.items():
            (work / name).write_text(text, encoding="utf-8")
        made = work / "steps.so"
        include = (f"-I{each}" for each in (work, INCLUDE, MODEL[0].parent))
        run_tool(
            ["gcc", *_FLAGS, *include, "-o", made, *sorted(work.glob("*.c")), *DRIVER, *MODEL, "-lm"],
            error=ToolchainError,
            hint="the model of VTA needs a C compiler for this machine: apt install gcc libc6-dev",
        )
        library = ctypes.CDLL(str(made))
    memories = [[_memory(size) for size in kind] for kind in sizes]
    inputs, outputs = ((ctypes.c_void_p * max(len(each), 1))(*map(_address, each)) for each in memories[:2])
    getattr(library, run)(inputs, outputs, *(ctypes.c_void_p(_address(each)) for each in memories[2]))
    library.vta_sim_step(steps)
    noted = (VtaStatistics * (steps + 1)).in_dll(library, "vta_sim_steps")
    counted = [in_words(each) for each in noted]
    return [{name: after[name] - before[name] for name in after} for before, after in itertools.pairwise(counted)]


def _memory(size: int) -> "ctypes.Array[ctypes.c_char]":
    return ctypes.create_string_buffer(size + _ALIGNMENT)


def _address(memory: "ctypes.Array[ctypes.c_char]") -> int:
    return -(-ctypes.addressof(memory) // _ALIGNMENT) * _ALIGNMENT
