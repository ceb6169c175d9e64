# SPDX-License-Identifier: Apache-2.0
"""From a schedule to a module that runs on this computer's side of VTA."""

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir

from utvm.compiler.host import host_target
from utvm.compiler.targets.vta.env import Env
from utvm.compiler.targets.vta.lower import lower as lower_module
from utvm.runtime.vta.header import CALLS, symbol
from utvm.vta.here import simulator


def lower(scheduled: Any, env: Env) -> Any:
    """Lower a schedule to calls of VTA's driver.

    Args:
        scheduled: an ``s_tir.Schedule``, or an ``IRModule`` of scheduled functions.

    Returns:
        An ``IRModule``; printed, it shows the calls.

    Raises:
        CompileError: a statement is nothing that VTA does, or a buffer does not fit on the chip.
    """
    return lower_module(scheduled.mod if isinstance(scheduled, s_tir.Schedule) else scheduled, env)


def build(scheduled: Any, env: Env) -> Any:
    """Build a schedule for this computer with VTA beside it.

    Args:
        scheduled: as for :func:`lower`.

    Returns:
        TVM's executable: its functions take tensors, and ``export_library`` writes it to a file.

    Raises:
        CompileError: as :func:`lower`.
        ConfigError: the configuration is for hardware, for which nothing is built yet.
        ToolchainError: the model of VTA cannot be compiled.
    """
    module = lower(scheduled, env)
    # What is built looks for the driver's calls in this process.
    simulator(env)

    def bound(name: Any) -> Any:
        return tvm.ir.StringImm(symbol(name.value, env.configuration)) if name.value in CALLS else name

    functions = {
        name: function.with_body(tvm_ffi.structural_map(function.body, (tvm.ir.StringImm, bound), order="post"))
        for name, function in module.functions.items()
    }
    target = tvm.target.Target({"kind": "ext_dev"}, host=host_target())
    return tvm.tirx.build(tvm.IRModule(functions), target=target)
