# SPDX-License-Identifier: Apache-2.0
"""The accelerator VTA for people: declare an operator, put its buffers on the chip, build it, run it.

``docs/vta.md`` goes through it step by step; the words are those of TVM's own tutorials for VTA.
"""

import functools
import os
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import rpc, s_tir

from utvm import boards
from utvm.boards.bitstream import read_bitstream
from utvm.compiler.host import host_target
from utvm.compiler.targets.vta.env import Env
from utvm.compiler.targets.vta.lower import BEGIN, SYNCHRONIZE
from utvm.compiler.targets.vta.lower import lower as lower_module
from utvm.errors import BoardError, ConfigError
from utvm.runtime.vta.configuration import Configuration, load_configuration
from utvm.runtime.vta.header import CALLS, symbol
from utvm.virtual.vta.picture import picture
from utvm.virtual.vta.simulator import VtaSimulator
from utvm.virtual.vta.simulator import simulator as model_of

__all__ = [
    "Configuration",
    "Env",
    "VtaSimulator",
    "build",
    "connect",
    "get_env",
    "lower",
    "picture",
    "program_fpga",
    "serve",
    "simulator",
]


def get_env(config: str | None = None) -> Env:
    """Return the VTA that operators are made for.

    Args:
        config: a ``vta_config.json``; by default what ``UTVM_VTA_CONFIG`` names, else the project's.
    """
    return Env(load_configuration(config))


HOST, PORT = "VTA_RPC_HOST", "VTA_RPC_PORT"
"""Environment variables that name an RPC server with a VTA."""

INIT = "tvm.contrib.vta.init"
"""What programs the hardware, at an RPC server."""

_here: dict[str, VtaSimulator] = {}


def simulator(env: Env) -> VtaSimulator:
    """Return this process's model of a VTA."""
    if env.TARGET == "pynq":
        raise ConfigError(
            "TARGET is pynq, which is no model",
            "sim and tsim are; networks go to a board's own VTA by --accelerator all",
        )
    _register()
    return _here.setdefault(env.BITSTREAM, model_of(env.configuration))


def connect(env: Env) -> Any:
    """Return TVM's RPC session with whoever has the VTA: ``VTA_RPC_HOST`` at ``VTA_RPC_PORT``, else this
    process.
    """
    host, port = os.environ.get(HOST), os.environ.get(PORT, "9091")
    if host:
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigError(f"{PORT} is {port!r}, which is no port", "1 to 65535")
        try:
            return rpc.connect(host, int(port))
        except (RuntimeError, OSError) as error:
            raise BoardError(
                f"no RPC server answers at {host}:{port}, which {HOST} and {PORT} name", "is one running there?"
            ) from error
    if env.TARGET == "pynq":
        raise ConfigError(f"TARGET is pynq, and {HOST} names nobody who has one", f"set {HOST} and {PORT}")
    simulator(env)
    return rpc.LocalSession()


def serve(env: Env, host: str = "127.0.0.1") -> Any:
    """Start TVM's own RPC server in a process that has the model of a VTA.

    Returns:
        The server: clients connect to its ``port``, and ``terminate`` ends it.
    """
    return rpc.Server(host, server_init_callback=functools.partial(simulator, env))


def program_fpga(remote: Any, bitstream: str | Path | None = None) -> None:
    """Program the hardware behind a session; a model has nothing to program.

    Args:
        bitstream: the file, for the chip of a PYNQ-Z1; by default what the server has for its configuration.
    """
    name = ""
    if bitstream:
        path = Path(bitstream)
        read_bitstream(path, boards.load("pynq-z1").programmable.part)
        name = path.name
        remote.upload(str(path), name)
    remote.get_function(INIT)(name)


def _register() -> None:
    """Tell TVM what lowered functions call, and that memory of ``ext_dev`` is the CPU's."""
    if _here:
        return
    tvm.register_global_func(BEGIN, _begin, override=True)
    tvm.register_global_func(SYNCHRONIZE, _synchronize, override=True)
    tvm.register_global_func(INIT, _init, override=True)
    tvm.register_global_func("device_api.ext_dev", tvm.get_global_func("device_api.cpu"), override=True)


def _begin(bitstream: str) -> None:
    if bitstream not in _here:
        raise BoardError(
            f"an operator was made for the VTA {bitstream}, and this process has {', '.join(_here)}",
            "build it for the same vta_config.json",
        )


def _synchronize(bitstream: str) -> None:
    _here[bitstream].synchronize()


def _init(_: str) -> None:
    """Program the hardware: here it is a model."""


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
