# SPDX-License-Identifier: Apache-2.0
"""RPC over each transport of the board: outputs equal the reference's, and faults are reported."""

import struct
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from hil_tests.architectures import trap_name_of
from hil_tests.programs import handwritten, line_of
from models.digits import quantize
from models.tflite_reference import tflite_micro
from utvm import runtime
from utvm.compiler import Library, Tensor, load
from utvm.hil.plugin import board_of
from utvm.session.fault import DeviceFault
from utvm.session.minrpc import Code, TypeIndex
from utvm.session.rpc import RpcBoard, RpcError, RpcSession

_UNDEFINED = handwritten("undefined", "  __builtin_trap();\n  return 0;")
_FAILING = handwritten("failing", "  return x[0];")
_ELEMENTS = 260  # More than one packet holds, and more than a pipe's buffer.
_COPYING = handwritten(
    "copying", f"  for (int i = 0; i < {_ELEMENTS}; i++) {{ y[i] = x[i]; }}\n  return 0;", elements=_ELEMENTS
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test over each transport that the board's CPU supports."""
    if "pipe" in metafunc.fixturenames:
        board = board_of(metafunc.config)
        pipes = runtime.pipes(board.architecture)
        needs = {pipe: [pytest.mark.needs(need)] for pipe, need in runtime.PIPE_NEEDS.items()}
        metafunc.parametrize("pipe", [pytest.param(pipe, marks=needs.get(pipe, [])) for pipe in pipes])


@pytest.fixture(scope="module")
def digits(compile_for_board: Callable[..., Library]) -> Library:
    return compile_for_board(load(quantize.MODEL))


@pytest.fixture
def remote(serve: Callable[..., RpcBoard], digits: Library, pipe: runtime.Pipe) -> Iterator[RpcSession]:
    libraries = [digits, _UNDEFINED, _FAILING, _COPYING]
    with RpcSession(serve(libraries, pipe), libraries) as session:
        yield session


def test_outputs_equal_the_reference_kernels(
    remote: RpcSession,
    digits: Library,
    pipe: runtime.Pipe,
    record_statistics: Callable[[str, Mapping[str, int | str]], None],
    pytestconfig: pytest.Config,
) -> None:
    inputs = [np.random.default_rng(seed).integers(-128, 128, (1, 8, 8, 1), np.int8) for seed in range(2)]
    expected = tflite_micro(quantize.MODEL.read_bytes(), [[array] for array in inputs])
    for array, (scores,) in zip(inputs, expected, strict=True):
        assert remote.run(digits.name, [array]).outputs[0].tobytes() == scores.tobytes()
    block = Tensor("block", (3000,), "uint8")
    data = np.random.default_rng(2).integers(0, 256, block.shape, np.uint8).tobytes()
    address = remote.allocate(block)
    remote.write(block, address, data)
    assert remote.read(block, address) == data
    statistics = remote.stats()
    _, counts = remote.profile(digits.name, [inputs[0]])
    if board_of(pytestconfig).cycle_counter == "none":
        assert (statistics.pop(remote.board.unit), sum(counts)) == (0, 0)
    else:
        assert min(statistics[remote.board.unit], sum(counts)) > 0
        record_statistics(
            f"{digits.name} over RPC, {pipe}: {remote.board.unit} of each operator",
            dict(zip(digits.operators, counts, strict=True)),
        )
    record_statistics(f"{digits.name} over RPC, {pipe}", statistics)
    assert statistics["runs"] == len(inputs)
    assert statistics["crc_errors"] == 0
    assert statistics["memory_bytes"] == statistics["memory_bytes_at_most"] > len(data)


@pytest.mark.needs("counter")
def test_time_evaluator_returns_the_count(remote: RpcSession, digits: Library) -> None:
    plain = remote.run(digits.name, [np.zeros((1, 8, 8, 1), np.int8)])
    assert remote.link is not None
    function, none = b"utvm.run", struct.pack("<i", TypeIndex.NONE)
    arguments = [
        *(none, struct.pack("<iQ", TypeIndex.RAW_STRING, len(function)) + function, none, none),
        *(struct.pack("<iq", TypeIndex.INTEGER, number) for number in (1, 2, 0)),  # number, repeat, least time
        *([none] * 4),
        struct.pack("<iQ", TypeIndex.RAW_STRING, 0),
    ]
    reply = remote.call("runtime.RPCTimeEvaluator", *arguments)
    handle = reply[-8:]
    result = remote.link.request(struct.pack("<i", Code.CALL) + handle + struct.pack("<i", 0), 60)
    seconds = struct.unpack("<2d", result[-16:])
    if plain.unit == "instructions":
        # The call itself takes instructions, too.
        assert all(plain.count <= value < 2 * plain.count and value == int(value) for value in seconds)
    else:
        assert all(0 < value < 10 for value in seconds)


def test_an_error_code_reaches_the_host(remote: RpcSession) -> None:
    with pytest.raises(RpcError, match="model failing returned error code -7"):
        remote.run("failing", [np.full(4, -7, np.int32)])


def test_longest_packets_are_not_cut(remote: RpcSession) -> None:
    ones = np.full(_ELEMENTS, -1, np.int32)  # Bytes FF: framing sends each of them twice.
    assert remote.run("copying", [ones]).outputs[0].tobytes() == ones.tobytes()
    statistics, link = remote.stats(), remote.link
    assert link is not None
    assert (statistics["crc_errors"], statistics["packets_dropped"], link.crc_errors) == (0, 0, 0)
    assert statistics["bytes_received"] <= link.bytes_sent, "a pipe makes bytes up"


def test_fault_is_reported_and_a_reset_recovers(
    remote: RpcSession, digits: Library, pytestconfig: pytest.Config
) -> None:
    with pytest.raises(DeviceFault) as caught:
        remote.run("undefined", [np.zeros(4, np.int32)])
    assert caught.value.record.meaning.name == trap_name_of(pytestconfig)
    assert f"undefined.c:{line_of(_UNDEFINED, '__builtin_trap')}" in caught.value.source_line
    remote.reset()
    array = np.zeros((1, 8, 8, 1), np.int8)
    assert remote.run(digits.name, [array]).outputs[0].shape == (1, 10)
