# SPDX-License-Identifier: Apache-2.0
"""TVM's own RPC client, unmodified, drives a board that ``./inv board.serve`` has put on TCP.

The board is the process that stands in for one: the same runtime, no emulator.
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

from tests.session.raw_client import RawClient, opening
from tests.session.served import MODEL, Served, served
from utvm.compiler import Library, compile_model, load
from utvm.compiler.host import reference
from utvm.paths import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("serve"), "--board", "host") as board:
        yield board


@pytest.fixture(scope="module")
def library() -> Library:
    return compile_model(load(MODEL))


@pytest.fixture
def remote(host: Served) -> Iterator[Any]:
    from tvm import rpc

    # As every tutorial writes it.
    session = rpc.connect(host.address, host.port)
    yield session
    session.get_function("CloseRPCConnection")()


def image(seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-128, 128, (1, 8, 8, 1), np.int8)


def put(remote: Any, array: Any) -> Any:
    import tvm

    return tvm.runtime.tensor(array, remote.cpu())


def test_inputs_go_up_the_model_runs_and_outputs_come_down(remote: Any, library: Library) -> None:
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
        # The input stays: running again gives the same.
        run()
        get_output(0, output)
        assert output.numpy().tobytes() == first.tobytes()
    told = json.loads(stats())
    assert told["runs"] >= 10
    assert told["ns"] > 0
    assert told["memory_bytes_at_most"] >= told["memory_bytes"] > 0


def test_parts_of_inputs_and_outputs_go_as_bytes(remote: Any) -> None:
    array, output = image(), put(remote, np.zeros((1, 10), np.int8))
    data = array.tobytes()
    remote.get_function("utvm.put")(0, 0, bytearray(data[:40]))
    remote.get_function("utvm.put")(0, 40, bytearray(data[40:]))
    assert remote.get_function("utvm.run")() > 0
    remote.get_function("utvm.get_output")(0, output)
    take = remote.get_function("utvm.take")
    assert bytes(take(0, 0, 3)) + bytes(take(0, 3, 7)) == output.numpy().tobytes()


def test_steps_and_limits(remote: Any, library: Library) -> None:
    steps = remote.get_function("utvm.profile")()
    assert steps == len(library.calls)
    counts = np.frombuffer(bytes(remote.get_function("utvm.step_cycles")(0)), "<u8")
    assert len(counts) == steps
    assert counts.sum() > 0
    remote.get_function("utvm.limit")(10_000)
    remote.get_function("utvm.run")()


def test_time_evaluator(remote: Any) -> None:
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


def test_an_operator_of_the_model_can_be_called(remote: Any, library: Library) -> None:
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
def test_what_is_wrong_with_a_call_reaches_the_client(
    remote: Any, name: str, arguments: tuple[Any, ...], message: str
) -> None:
    values = [put(remote, value) if isinstance(value, np.ndarray) else value for value in arguments]
    with pytest.raises(Exception, match=message):
        remote.get_function(name)(*values)
    # The board goes on.
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


def test_an_unknown_function_is_not_there(remote: Any) -> None:
    with pytest.raises(AttributeError, match="nope"):
        remote.get_function("nope")


def raw(host: Served) -> RawClient:
    return RawClient(host.port, host.key).greet()


def test_another_version_of_the_protocol_is_refused(host: Served) -> None:
    with raw(host) as client:
        answer = client.ask(opening("0.7.0"))
    assert struct.unpack_from("<i", answer) == (5,)
    assert b"the board speaks RPC protocol 0.8.0, the client 0.7.0" in answer


def test_handles_and_tensors_that_are_freed_twice_are_refused(host: Served) -> None:
    client = raw(host)
    client.ask(opening())
    name = b"utvm.run"
    answer = client.ask(struct.pack("<iiiQ", 9, 1, 8, len(name)) + name)
    (handle,) = struct.unpack_from("<Q", answer, 12)
    free = struct.pack("<iiiQ", 10, 1, 4, handle)
    assert struct.unpack_from("<i", client.ask(free)) == (4,)
    assert b"handle to be freed is not in use" in client.ask(free)
    assert b"its handle has been freed" in client.ask(struct.pack("<iQi", 3, handle, 0))
    device = struct.pack("<iii", 6, 1, 0)
    allocate = (
        struct.pack("<ii", 13, 4) + device + struct.pack("<iqiq", 1, 64, 1, 64) + struct.pack("<iBBHi", 5, 0, 8, 1, 0)
    )
    (address,) = struct.unpack_from("<Q", client.ask(allocate), 12)
    free = struct.pack("<ii", 14, 2) + device + struct.pack("<iQ", 4, address)
    assert struct.unpack_from("<i", client.ask(free)) == (4,)
    assert b"it has been freed before" in client.ask(free)
    wild = struct.pack("<iQiiiBBHqQQ", 6, address, 1, 0, 1, 0, 8, 1, 64, 0, 64)
    assert b"not in the board's memory" in client.ask(wild)
    client.socket.close()


def test_connecting_a_thousand_times_costs_nothing(host: Served) -> None:
    def settled() -> tuple[int, int, int]:
        (server,) = psutil.Process(host.process.pid).children()  # of inv
        (board,) = server.children()
        return server.num_fds(), server.num_threads(), board.memory_info().rss

    raw(host).socket.close()
    time.sleep(1.0)
    before = settled()
    for number in range(1000):
        client = raw(host)
        if number % 3:
            # In the middle of a session, of a packet, or before either; the one before has just left.
            assert struct.unpack_from("<i", client.ask(opening())) == (4,)
            client.socket.sendall(b"\x30\0\0"[: number % 4])
        client.socket.close()
    deadline = time.monotonic() + 60
    while settled()[:2] != before[:2] and time.monotonic() < deadline:
        time.sleep(0.1)
    after = settled()
    assert after[:2] == before[:2]
    assert after[2] <= before[2] + (1 << 20)
    client = raw(host)
    assert struct.unpack_from("<i", client.ask(opening())) == (4,)
    client.socket.close()


def test_a_server_whose_board_has_died_says_so_and_ends(tmp_path: Path) -> None:
    """Seen to serve for ever, and to tell each client that a command of the emulator's failed."""
    with served(tmp_path, "--board", "mps2-an500") as board:
        (emulator,) = [
            child
            for child in psutil.Process(board.process.pid).children(recursive=True)
            if child.name().startswith("qemu")
        ]
        emulator.kill()
        # Its connections are cut a moment before it has ended, and the last of its threads may be that much later.
        with contextlib.suppress(psutil.NoSuchProcess):
            while emulator.status() != psutil.STATUS_ZOMBIE or len(emulator.threads()) > 1:
                time.sleep(0.01)
        with RawClient(board.port, board.key).greet() as client:
            assert b"QEMU ended" in client.ask(opening())
        assert board.process.wait(60) == 3
        assert len(re.findall("^error: .*QEMU ended", board.output(), re.MULTILINE)) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--board", "host", "--virtual", "--tracker", "127.0.0.1:9190"], "is a process"),
        (["--board", "host", "--tracker", "nowhere"], "is not HOST:PORT"),
        (["--board", "host", "--port", "70000"], "65535"),
    ],
)
def test_wrong_words_on_the_command_line(options: list[str], words: str) -> None:
    done = subprocess.run(
        [ROOT / "inv", "board.serve", "--model", MODEL, *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
