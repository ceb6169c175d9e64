# SPDX-License-Identifier: Apache-2.0
"""TVM's own RPC client, unmodified, uses a board that ``./inv board.serve`` serves over TCP.

The board is a process on the host: the same runtime, without an emulator.
"""

import contextlib
import json
import re
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.session.board_server import MODEL, BoardServer, serve_board
from tests.session.raw_client import RawClient, init_packet
from utvm.compiler import Library, compile_model, load
from utvm.compiler.host import reference
from utvm.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardServer]:
    with serve_board(tmp_path_factory.mktemp("serve"), "--board", "host") as board:
        yield board


@pytest.fixture(scope="module")
def library() -> Library:
    return compile_model(load(MODEL))


@pytest.fixture
def remote(host: BoardServer) -> Iterator[Any]:
    from tvm import rpc

    # As in every tutorial.
    session = rpc.connect(host.address, host.port)
    yield session
    session.get_function("CloseRPCConnection")()


def image(seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-128, 128, (1, 8, 8, 1), np.int8)


def put(remote: Any, array: Any) -> Any:
    import tvm

    return tvm.runtime.tensor(array, remote.cpu())


def test_model_runs_with_uploaded_inputs(remote: Any, library: Library) -> None:
    set_input, run, get_output, stats = (
        remote.get_function(f"utvm.{name}") for name in ("set_input", "run", "get_output", "stats")
    )
    expect = reference(load(MODEL))
    for seed in range(5):
        array = image(seed)
        set_input(0, put(remote, array))
        output = put(remote, np.zeros((1, 10), np.int8))
        run()
        get_output(0, output)
        np.testing.assert_array_equal(output.numpy(), expect([array])[0])
        first = output.numpy()
        # The input stays: a second run gives the same output.
        run()
        get_output(0, output)
        assert output.numpy().tobytes() == first.tobytes()
    statistics = json.loads(stats())
    assert statistics["runs"] >= 10
    assert statistics["ns"] > 0
    assert statistics["memory_bytes_at_most"] >= statistics["memory_bytes"] > 0


def test_parts_of_inputs_and_outputs_are_sent_as_bytes(remote: Any) -> None:
    array, output = image(), put(remote, np.zeros((1, 10), np.int8))
    data = array.tobytes()
    remote.get_function("utvm.put")(0, 0, bytearray(data[:40]))
    remote.get_function("utvm.put")(0, 40, bytearray(data[40:]))
    assert remote.get_function("utvm.run")() > 0
    remote.get_function("utvm.get_output")(0, output)
    take = remote.get_function("utvm.take")
    assert bytes(take(0, 0, 3)) + bytes(take(0, 3, 7)) == output.numpy().tobytes()


def test_steps_are_profiled_and_limits_set(remote: Any, library: Library) -> None:
    steps = remote.get_function("utvm.profile")()
    assert steps == len(library.calls)
    counts = np.frombuffer(bytes(remote.get_function("utvm.step_cycles")(0)), "<u8")
    assert len(counts) == steps
    assert counts.sum() > 0
    remote.get_function("utvm.limit")(10_000)
    remote.get_function("utvm.run")()


def test_time_evaluator_measures_runs(remote: Any) -> None:
    remote.get_function("utvm.set_input")(0, put(remote, image()))
    measured = remote.system_lib().time_evaluator("utvm.run", remote.cpu(), number=4, repeat=3)()
    assert len(measured.results) == 3
    assert all(0 < seconds < 1 for seconds in measured.results)
    with pytest.raises(Exception, match="together at most 1000000"):
        remote.system_lib().time_evaluator("utvm.run", remote.cpu(), number=10**6, repeat=2)
    longer = remote.system_lib().time_evaluator("utvm.run", remote.cpu(), number=1, repeat=1, min_repeat_ms=20)
    runs = json.loads(remote.get_function("utvm.stats")())["runs"]
    longer()
    assert json.loads(remote.get_function("utvm.stats")())["runs"] > runs + 1


def test_operator_of_the_model_can_be_called(remote: Any, library: Library) -> None:
    entry = next(entry for entry in library.entry_points if len(entry.sizes) >= 2)
    tensors = [put(remote, np.zeros(size, np.uint8)) for size in entry.sizes]
    remote.get_function(entry.function)(*tensors)
    with pytest.raises(Exception, match=f"the operator needs a tensor of {entry.sizes[0]} bytes as argument 0"):
        remote.get_function(entry.function)(*[put(remote, np.zeros(7, np.uint8)), *tensors[1:]])
    with pytest.raises(Exception, match="takes another number of tensors"):
        remote.get_function(entry.function)(*tensors[:-1])


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("utvm.set_input", (0, np.zeros((1, 10), np.int8)), r"the model has int8\[1, 8, 8, 1\] there"),
        ("utvm.set_input", (0, np.zeros((1, 8, 8, 1), np.uint8)), r"the tensor is uint8\[1, 8, 8, 1\]"),
        ("utvm.set_input", (7, np.zeros((1, 8, 8, 1), np.int8)), "there is no number 7: the model has 1"),
        ("utvm.set_input", (-1, np.zeros((1, 8, 8, 1), np.int8)), "there is no number -1"),
        ("utvm.get_output", (1, np.zeros((1, 10), np.int8)), "there is no number 1: the model has 1"),
        ("utvm.get_output", (0,), "the arguments are a number and a tensor"),
        ("utvm.run", (1,), "there are no arguments"),
        ("utvm.profile", (1,), "there are no arguments"),
        ("utvm.put", (0, 60, bytearray(5)), "an input's number, an offset and bytes that fit"),
        ("utvm.put", (1, 0, bytearray(5)), "an input's number"),
        ("utvm.put", (0, -1, bytearray(5)), "an input's number"),
        ("utvm.take", (0, 8, 3), "an output's number, an offset and how many bytes"),
        ("utvm.take", (0, 0, -1), "an output's number"),
        ("utvm.step_cycles", (1000,), "the number of a step"),
        ("utvm.limit", (-1,), "a number of milliseconds"),
        ("utvm.load", ("other",), "no model of that name"),
        ("utvm.run", tuple(range(17)), "more than 16 arguments"),
    ],
)
def test_error_in_a_call_reaches_the_client(remote: Any, name: str, arguments: tuple[Any, ...], message: str) -> None:
    values = [put(remote, value) if isinstance(value, np.ndarray) else value for value in arguments]
    with pytest.raises(Exception, match=message):
        remote.get_function(name)(*values)
    # The board continues.
    remote.get_function("utvm.load")("digits_int8")


def test_oversized_allocation_is_refused_and_memory_reused(remote: Any) -> None:
    import tvm

    with pytest.raises(Exception, match="no room for a tensor of 1073741824 bytes"):
        tvm.runtime.empty((1 << 30,), "int8", remote.cpu())
    for _ in range(5):
        large = tvm.runtime.empty((9 << 20,), "int8", remote.cpu())
        del large
    assert json.loads(remote.get_function("utvm.stats")())["memory_bytes"] == 0


def test_large_tensors_are_sent_in_pieces(remote: Any) -> None:
    array = np.random.default_rng(1).integers(0, 256, 100_000).astype(np.uint8)
    assert put(remote, array).numpy().tobytes() == array.tobytes()


def test_unknown_function_is_an_error(remote: Any) -> None:
    with pytest.raises(AttributeError, match="nope"):
        remote.get_function("nope")


def raw_client(host: BoardServer) -> RawClient:
    return RawClient(host.port, host.key).greet()


def test_another_version_of_the_protocol_is_refused(host: BoardServer) -> None:
    with raw_client(host) as client:
        reply = client.request(init_packet("0.7.0"))
    assert struct.unpack_from("<i", reply) == (5,)
    assert b"the board speaks RPC protocol 0.8.0, the client 0.7.0" in reply


def test_handle_or_tensor_freed_twice_is_refused(host: BoardServer) -> None:
    client = raw_client(host)
    client.request(init_packet())
    name = b"utvm.run"
    reply = client.request(struct.pack("<iiiQ", 9, 1, 8, len(name)) + name)
    (handle,) = struct.unpack_from("<Q", reply, 12)
    free = struct.pack("<iiiQ", 10, 1, 4, handle)
    assert struct.unpack_from("<i", client.request(free)) == (4,)
    assert b"handle to be freed is not in use" in client.request(free)
    assert b"its handle has been freed" in client.request(struct.pack("<iQi", 3, handle, 0))
    device = struct.pack("<iii", 6, 1, 0)
    allocate = (
        struct.pack("<ii", 13, 4) + device + struct.pack("<iqiq", 1, 64, 1, 64) + struct.pack("<iBBHi", 5, 0, 8, 1, 0)
    )
    (address,) = struct.unpack_from("<Q", client.request(allocate), 12)
    free = struct.pack("<ii", 14, 2) + device + struct.pack("<iQ", 4, address)
    assert struct.unpack_from("<i", client.request(free)) == (4,)
    assert b"it has been freed before" in client.request(free)
    packet = struct.pack("<iQiiiBBHqQQ", 6, address, 1, 0, 1, 0, 8, 1, 64, 0, 64)
    assert b"not in the board's memory" in client.request(packet)
    client.socket.close()


def test_thousand_connections_cost_nothing(host: BoardServer) -> None:
    def usage() -> tuple[int, int, int]:
        (server,) = psutil.Process(host.process.pid).children()  # of inv
        (board,) = server.children()
        return server.num_fds(), server.num_threads(), board.memory_info().rss

    raw_client(host).socket.close()
    time.sleep(1.0)
    before = usage()
    for number in range(1000):
        client = raw_client(host)
        if number % 3:
            # It leaves in a session, in a packet, or before either; the client before has just left.
            assert struct.unpack_from("<i", client.request(init_packet())) == (4,)
            client.socket.sendall(b"\x30\0\0"[: number % 4])
        client.socket.close()
    deadline = time.monotonic() + 60
    while usage()[:2] != before[:2] and time.monotonic() < deadline:
        time.sleep(0.1)
    after = usage()
    assert after[:2] == before[:2]
    assert after[2] <= before[2] + (1 << 20)
    client = raw_client(host)
    assert struct.unpack_from("<i", client.request(init_packet())) == (4,)
    client.socket.close()


def test_server_of_a_lost_board_reports_it_and_ends(tmp_path: Path) -> None:
    """It served for ever, and reported a failed command of the emulator to each client."""
    with serve_board(tmp_path, "--board", "mps2-an500") as board:
        (emulator,) = [
            child
            for child in psutil.Process(board.process.pid).children(recursive=True)
            if child.name().startswith("qemu")
        ]
        emulator.kill()
        # Its connections are closed shortly before it ends, and the last of its threads may end even later.
        with contextlib.suppress(psutil.NoSuchProcess):
            while emulator.status() != psutil.STATUS_ZOMBIE or len(emulator.threads()) > 1:
                time.sleep(0.01)
        with RawClient(board.port, board.key).greet() as client:
            assert b"QEMU ended" in client.request(init_packet())
        assert board.process.wait(60) == 3
        assert len(re.findall("^error: .*QEMU ended", board.output(), re.MULTILINE)) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--board", "host", "--virtual", "--tracker", "127.0.0.1:9190"], "is a process"),
        (["--board", "host", "--tracker", "nowhere"], "is not HOST:PORT"),
        (["--board", "host", "--port", "70000"], "65535"),
    ],
)
def test_wrong_options_give_one_message(options: list[str], message: str) -> None:
    completed = subprocess.run(
        [ROOT / "inv", "board.serve", "--model", MODEL, *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert completed.returncode == 2, completed.stdout + completed.stderr
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr
