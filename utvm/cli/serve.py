"""What ``board.serve`` does: a board as a TVM RPC server, for the stock client."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from rich.markup import escape

from utvm import boards, compiler, firmware, runtime
from utvm.attach import attach, wish
from utvm.cli.library import executor_of
from utvm.cli.output import LOGS, OUT
from utvm.errors import ConfigError
from utvm.session.bridge import Bridge
from utvm.session.rpc_board import RpcBoard, as_process, on_bench

_LAST_PORT = 65535


def serve_board(
    board: str,
    model: Path,
    listen: str,
    port: int,
    tracker: str,
    key: str,
    executor: str,
    transport: str,
    physical: bool,
    virtual: bool,
    serial: str,
) -> None:
    """Compile a model, put it on a board and serve the board to TVM RPC clients until Ctrl-C.

    Args:
        listen: address of the interface to listen on.
        port: TCP port, 0 for any free one.
        tracker: ``HOST:PORT`` of a TVM RPC tracker, or an empty string.
        key: the board's RPC key, by default its name.
        transport: what the board talks through; by default its console or, a process, its standard streams.

    Raises:
        UtvmError: whatever went wrong on the way.
    """
    kind = wish(physical, virtual)
    if not 0 <= port <= _LAST_PORT:
        raise ConfigError(f"--port goes from 0 to {_LAST_PORT}", "port 0 takes any free one")
    where = _address(tracker) if tracker else None
    if model == Path():
        raise ConfigError("no model is named", "give one with --model FILE")
    logs = LOGS / f"board.serve-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        if boards.is_process(board):
            if physical or virtual or serial:
                raise ConfigError(f"{board} is a process: it is neither plugged in nor virtual", "leave that out")
            ready = stack.enter_context(_process(board, model, executor, transport or "stdio", logs))
            clock_hz = 0
        else:
            known = boards.load(board)
            pipe = firmware.pipe_of(known, transport or "console")
            library = compiler.compile_model(
                compiler.load(model), features=known.features, executor=executor_of(executor)
            )
            image = firmware.build(known, [library], "rpc", pipe)
            bench = stack.enter_context(attach(known, kind, serial=serial, log_directory=logs))
            ready = stack.enter_context(on_bench(bench, image, _log, pipe=pipe))
            clock_hz = known.clock_hz if bench.kind == "virtual" else 0
        bridge = Bridge(
            ready.connect,
            ready.restart,
            key=key or board,
            packet_limit=runtime.RPC_PACKET_BYTES,
            host=listen,
            port=port,
            tracker=where,
            log=_log,
        )
        OUT.print(escape(ready.description))
        if clock_hz:
            OUT.print(f"time_evaluator divides instructions by {clock_hz:,} Hz here: a VIRTUAL board has no time")
        OUT.print(f"serving on {listen}:{bridge.port}, key {escape(bridge.key)}; Ctrl-C ends it")
        with contextlib.suppress(KeyboardInterrupt):
            bridge.serve()


@contextlib.contextmanager
def _process(name: str, model: Path, executor: str, transport: str, logs: Path) -> Iterator[RpcBoard]:
    known = boards.load_process(name)
    firmware.pipe_of(known, transport)
    library = compiler.compile_model(compiler.load(model), executor=executor_of(executor))
    with as_process(known, firmware.build_process(known, [library]), logs, _log) as ready:
        yield ready


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) <= _LAST_PORT:
        raise ConfigError(f"--tracker {text!r} is no HOST:PORT", "for instance 127.0.0.1:9190")
    return host, int(port)


def _log(line: str) -> None:
    OUT.print(escape(line), highlight=False)
