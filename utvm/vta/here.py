# SPDX-License-Identifier: Apache-2.0
"""The VTAs of this process, and how TVM comes to them: as its device ``ext_dev``, here or behind an RPC server.

A process has a VTA of a configuration once :func:`simulator` was asked for it. Memory of ``ext_dev`` is this
computer's own: the driver lets VTA reach what an operator is called with, and nothing else.
"""

import functools
import os
from pathlib import Path
from typing import Any

import tvm
from tvm import rpc

from utvm import boards
from utvm.boards.bitstream import read_bitstream
from utvm.compiler.targets.vta.env import Env
from utvm.compiler.targets.vta.lower import BEGIN, SYNCHRONIZE
from utvm.errors import BoardError, ConfigError
from utvm.virtual.vta.simulator import VtaSimulator
from utvm.virtual.vta.simulator import simulator as model_of

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
