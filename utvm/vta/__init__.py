# SPDX-License-Identifier: Apache-2.0
"""The accelerator VTA in Python: declare an operator, place its buffers on the chip, build it, run it.

``docs/vta.md`` is a tutorial; the names are those of TVM's VTA tutorials. A process gets a VTA of a configuration
from :func:`simulator`. TVM reaches it as its device ``ext_dev``, here or behind an RPC server. Memory of
``ext_dev`` is memory of this computer: the driver gives VTA access only to an operator's arguments. Bitstreams are
those that VTA's authors published for the PYNQ-Z1, by the names of their configurations.
"""

import functools
import hashlib
import os
import socket
import types
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import tvm
import tvm_ffi
from tvm import rpc, s_tir
from tvm.rpc import server

from utvm import boards, errors
from utvm.base.process.peer import OwnerOnlySocket
from utvm.base.storage.cache import cache_root
from utvm.base.storage.files import create_own_folder, write_whole
from utvm.base.text.templates import templates_of
from utvm.boards.bitstream import read_bitstream
from utvm.compiler.host import host_target
from utvm.compiler.targets.vta.env import Env
from utvm.compiler.targets.vta.lower import BEGIN, SYNCHRONIZE
from utvm.compiler.targets.vta.lower import lower as lower_module
from utvm.errors import ConfigError
from utvm.runtime.vta.configuration import Configuration, load_configuration
from utvm.runtime.vta.header import CALLS, symbol
from utvm.virtual.vta.simulator import STAGES, Event, VtaSimulator
from utvm.virtual.vta.simulator import simulator as create_simulator

__all__ = ["Configuration", "Env", "VtaSimulator", "build", "connect", "get_env", "lower", "picture", "program_fpga"]
__all__ += ["serve", "simulator"]

HOST, PORT = "VTA_RPC_HOST", "VTA_RPC_PORT"  # Environment variables that name an RPC server with a VTA.
INIT = "tvm.contrib.vta.init"  # Function of an RPC server that programs the hardware.

# The core of a PYNQ-Z1, whose image passes floats in registers (toolchains/arm-none-eabi.yaml).
_PYNQ = {"kind": "llvm", "mtriple": "armv7a-none-eabihf", "mcpu": "cortex-a9", "mfloat-abi": "hard"}

_simulators: dict[str, VtaSimulator] = {}
ADDRESS = "https://github.com/uwsampl/vta-distro/raw/master/bitstreams/pynq"
# SHA-256 of the files there whose names a configuration spells; those of 0.0.0 are named otherwise.
_DIGESTS = {
    "0.0.1/1x16_i8w8a32_15_15_18_17.bit": "c8808d2f4877a7ab4301b58b9926eb5070495feaf3fde401cec4e0228f2db7f3",
    "0.0.1/4x8_i8w8a32_15_16_16_18.bit": "5a5cedeaa40d287f9756f444e9fffb0d8ed76f6b225ddbb54e542c417bad8f13",
    "0.0.2/1x16_i8w8a32_15_15_18_17.bit": "0b24cdf9001d349512ab5fb34a0639056c87c8438dc3bce45be892ae43faf568",
}
_PATIENCE = 30  # Seconds without an answer.
_COLOURS = {"load": "#4e79a7", "store": "#e15759", "gemm": "#59a14f", "alu": "#edc948", "finish": "#9c755f"}


def get_env(config: str | None = None) -> Env:
    """The VTA that operators are built for."""
    return Env(load_configuration(config))


def simulator(env: Env) -> VtaSimulator:
    """This process's model of a VTA."""
    if env.TARGET == "pynq":
        raise errors.ConfigError(
            "TARGET is pynq, which has no model",
            "use sim or tsim; to run a network on a board's own VTA, use --set accelerator=all",
        )
    if not _simulators:
        tvm.register_global_func(BEGIN, _begin, override=True)
        tvm.register_global_func(SYNCHRONIZE, lambda name: _simulators[name].synchronize(), override=True)
        tvm.register_global_func(INIT, lambda _: None, override=True)  # A model has nothing to program.
        tvm.register_global_func("device_api.ext_dev", tvm.get_global_func("device_api.cpu"), override=True)
    return _simulators.setdefault(env.BITSTREAM, create_simulator(env.configuration))


def _begin(bitstream: str) -> None:
    if bitstream not in _simulators:
        raise errors.BoardError(
            f"an operator was built for the VTA {bitstream}, and this process has {', '.join(_simulators)}",
            "build it for the same vta_config.json",
        )


def connect(env: Env) -> Any:
    """TVM's RPC session with the VTA at ``VTA_RPC_HOST`` and ``VTA_RPC_PORT``, or with this process."""
    host, port = os.environ.get(HOST), os.environ.get(PORT, "9091")
    if host:
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise errors.ConfigError(f"{PORT} is {port!r}, which is not a port", "1 to 65535")
        try:
            return rpc.connect(host, int(port))
        except (RuntimeError, OSError) as error:
            raise errors.BoardError(
                f"no RPC server answers at {host}:{port}, which {HOST} and {PORT} name", "start one there"
            ) from error
    if env.TARGET == "pynq":
        raise errors.ConfigError(f"TARGET is pynq, and {HOST} is not set", f"set {HOST} and {PORT}")
    simulator(env)
    return rpc.LocalSession()


def serve(env: Env, host: str = "127.0.0.1", *, anyone: bool = False) -> Any:
    """Start TVM's RPC server in a process with a model of VTA; clients use its ``port``, ``terminate`` ends it.

    Args:
        anyone: whether clients of other users, and other computers, are accepted too. A client can run programs.
    """
    # It starts Python with -m, which searches the current folder unless told not to (Python 3.11).
    with mock.patch.dict(os.environ, PYTHONSAFEPATH="1"):
        return rpc.Server(host, server_init_callback=functools.partial(_begin_server, env, anyone=anyone))


def _begin_server(env: Env, *, anyone: bool) -> None:
    simulator(env)
    if not anyone:
        server.socket = types.SimpleNamespace(**{**vars(socket), "socket": OwnerOnlySocket})


def program_fpga(remote: Any, bitstream: str | Path | None = None) -> None:
    """Program the hardware behind a session; a model ignores it.

    Args:
        bitstream: a file for the chip of a PYNQ-Z1; by default the published one of the configuration, if its
            ``TARGET`` is ``pynq``.
    """
    name = ""
    if bitstream or get_env().TARGET == "pynq":
        path = Path(bitstream) if bitstream else find_published(get_env().configuration)
        read_bitstream(path, boards.load("pynq-z1").programmable)
        name = path.name
        remote.upload(str(path), name)
    remote.get_function(INIT)(name)


def lower(scheduled: Any, env: Env) -> Any:
    """Lower a schedule, an ``s_tir.Schedule`` or an ``IRModule``, to an ``IRModule`` that calls VTA's driver."""
    module = scheduled.mod if isinstance(scheduled, s_tir.Schedule) else scheduled
    return lower_module(module, env, linked=env.TARGET == "pynq")


def build(scheduled: Any, env: Env) -> Any:
    """Build a schedule, as for :func:`lower`, for the VTA that ``TARGET`` names.

    Returns:
        TVM's executable: its functions take tensors, and ``export_library`` writes it to a file. For ``pynq``,
        that is a ``NAME.tar`` with an object for the board's core, which the board's server links with the driver.
    """
    module = lower(scheduled, env)
    if env.TARGET == "pynq":
        # The board passes its memory as CPU memory.
        target = tvm.target.Target(_PYNQ, host=_PYNQ)
    else:
        # The module looks up the driver's functions in this process.
        simulator(env)
        target = tvm.target.Target({"kind": "ext_dev"}, host=host_target())

    def bind(name: Any) -> Any:
        return tvm.ir.StringImm(symbol(name.value, env.configuration)) if name.value in CALLS else name

    functions = {
        name: function.with_body(tvm_ffi.structural_map(function.body, (tvm.ir.StringImm, bind), order="post"))
        for name, function in module.functions.items()
    }
    return tvm.tirx.build(tvm.IRModule(functions), target=target)


def find_published(configuration: Configuration) -> Path:
    """Return the published bitstream of a configuration: from the user's cache, or else from its address.

    Raises ConfigError if none is published, it cannot be had, or it is not the published one.
    """
    name = f"{configuration.file.HW_VER}/{configuration.bitstream}.bit"
    if name not in _DIGESTS:
        raise ConfigError(
            f"no bitstream {name} is published", f"program_fpga(remote, FILE); published: {', '.join(_DIGESTS)}"
        )
    path, address = cache_root() / "bitstreams" / name, f"{ADDRESS}/{name}"
    try:
        raw, source = path.read_bytes(), str(path)
    except OSError:
        try:
            with urllib.request.urlopen(address, timeout=_PATIENCE) as reply:
                raw, source = reply.read(), address
        except OSError as error:
            raise ConfigError(
                f"{address}: cannot be fetched: {getattr(error, 'reason', error)}",
                f"put the file at {path}, or name one: program_fpga(remote, FILE)",
            ) from error
    if (digest := hashlib.sha256(raw).hexdigest()) != _DIGESTS[name]:
        raise ConfigError(f"{source}: has SHA-256 {digest}, and the published file {_DIGESTS[name]}", "replace it")
    if source == address:
        create_own_folder(path.parent)
        write_whole(path, raw)
    return path


def wait_cycles(events: Sequence[Event]) -> dict[tuple[str, str], int]:
    """Modelled cycles that a stage waited for another, by the two stages."""
    sums: Counter[tuple[str, str]] = Counter()
    for event in events:
        if event.start > event.ready:
            sums[event.stage, _sources(event)] += event.start - event.ready
    return dict(sums)


def picture(events: Sequence[Event]) -> str:
    """Return an SVG with a row for each stage: coloured while it works, pale while it waits, with tooltips."""
    waits = sorted(wait_cycles(events).items())
    return (
        templates_of("utvm.virtual.vta", html=True)
        .get_template("stages.svg.j2")
        .render(
            stages=STAGES,
            events=events,
            end=max((event.end for event in events), default=1),
            waits=[f"{stage} waited {cycles:,} for {source}" for (stage, source), cycles in waits],
            colours={**_COLOURS, "waits": "#dddddd"},
            sources=_sources,
        )
    )


def _sources(event: Event) -> str:
    index = STAGES.index(event.stage)
    names = [
        STAGES[index + step] for flag, step in (("pop_prev=1", -1), ("pop_next=1", 1)) if flag in event.line.split()
    ]
    return " and ".join(names)
