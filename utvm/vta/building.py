# SPDX-License-Identifier: Apache-2.0
"""From a schedule to a module that drives VTA: on this computer, or on a PYNQ-Z1's own core."""

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir

from utvm.compiler.host import host_target
from utvm.compiler.targets.vta.env import Env
from utvm.compiler.targets.vta.lower import lower as lower_module
from utvm.runtime.vta.header import CALLS, symbol
from utvm.vta.here import simulator

# The core of a PYNQ-Z1, whose image passes floats through registers (toolchains/arm-none-eabi.yaml).
_PYNQ = {"kind": "llvm", "mtriple": "armv7a-none-eabihf", "mcpu": "cortex-a9", "mfloat-abi": "hard"}


def lower(scheduled: Any, env: Env) -> Any:
    """Lower a schedule to calls of VTA's driver.

    Args:
        scheduled: an ``s_tir.Schedule``, or an ``IRModule`` of scheduled functions.

    Returns:
        An ``IRModule``; printed, it shows the calls.
    """
    module = scheduled.mod if isinstance(scheduled, s_tir.Schedule) else scheduled
    return lower_module(module, env, linked=env.TARGET == "pynq")


def build(scheduled: Any, env: Env) -> Any:
    """Build a schedule for whoever has the VTA that ``TARGET`` names.

    Args:
        scheduled: as for :func:`lower`.

    Returns:
        TVM's executable: its functions take tensors, and ``export_library`` writes it to a file. For ``pynq``,
        that is a ``NAME.tar`` of an object for the board's core: who serves the board links it with VTA's driver.
    """
    module = lower(scheduled, env)
    if env.TARGET == "pynq":
        # The board passes its memory as a CPU's, which it is.
        target = tvm.target.Target(_PYNQ, host=_PYNQ)
    else:
        # What is built looks for the driver's calls in this process.
        simulator(env)
        target = tvm.target.Target({"kind": "ext_dev"}, host=host_target())

    def bound(name: Any) -> Any:
        return tvm.ir.StringImm(symbol(name.value, env.configuration)) if name.value in CALLS else name

    functions = {
        name: function.with_body(tvm_ffi.structural_map(function.body, (tvm.ir.StringImm, bound), order="post"))
        for name, function in module.functions.items()
    }
    return tvm.tirx.build(tvm.IRModule(functions), target=target)
