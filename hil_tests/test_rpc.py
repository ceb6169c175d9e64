"""The board answers RPC: with the results of the reference, and a fault told in words."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytest

from hil_tests.programs import handwritten, line_of
from models.digits import quantize
from models.tflite_reference import tflite_micro
from utvm.compiler import Library, load
from utvm.session.fault import DeviceFault
from utvm.session.rpc import RpcError, RpcSession
from utvm.session.rpc_board import RpcBoard

_UNDEFINED = handwritten("undefined", "  __builtin_trap();\n  return 0;")
_FAILING = handwritten("failing", "  return x[0];")


@pytest.fixture(scope="module")
def digits(compile_for_board: Callable[..., Library]) -> Library:
    return compile_for_board(load(quantize.MODEL))


@pytest.fixture
def served(serve: Callable[[Sequence[Library]], RpcBoard], digits: Library) -> RpcBoard:
    return serve([digits, _UNDEFINED, _FAILING])


@pytest.fixture
def remote(digits: Library, served: RpcBoard) -> Iterator[RpcSession]:
    with RpcSession(served, [digits, _UNDEFINED, _FAILING]) as session:
        yield session


def test_rpc_gives_what_the_reference_gives(
    remote: RpcSession, digits: Library, record_statistics: Callable[[str, Mapping[str, int | str]], None]
) -> None:
    inputs = [np.random.default_rng(seed).integers(-128, 128, (1, 8, 8, 1), np.int8) for seed in range(2)]
    expected = tflite_micro(quantize.MODEL.read_bytes(), [[array] for array in inputs])
    for array, (scores,) in zip(inputs, expected, strict=True):
        assert remote.run(digits.name, [array]).outputs[0].tobytes() == scores.tobytes()
    told = remote.stats()
    record_statistics(f"{digits.name} over RPC", told)
    _, counts = remote.profile(digits.name, [inputs[0]])
    record_statistics(
        f"{digits.name}: {remote.board.unit} of each operator", dict(zip(digits.operators, counts, strict=True))
    )
    assert all(counts)
    assert told["runs"] == len(inputs)
    assert told["cycles"] > 0
    assert told["crc_errors"] == 0
    assert told["memory_bytes"] == told["memory_bytes_at_most"] > 0


def test_an_error_code_reaches_the_host(remote: RpcSession) -> None:
    with pytest.raises(RpcError, match="model failing returned error code -7"):
        remote.run("failing", [np.full(4, -7, np.int32)])


def test_a_fault_is_told_and_the_board_goes_on_after_a_reset(remote: RpcSession, digits: Library) -> None:
    with pytest.raises(DeviceFault) as caught:
        remote.run("undefined", [np.zeros(4, np.int32)])
    assert caught.value.record.name in {"UsageFault", "SIGILL"}
    assert f"undefined.c:{line_of(_UNDEFINED, '__builtin_trap')}" in caught.value.source_line
    remote.reset()
    array = np.zeros((1, 8, 8, 1), np.int8)
    assert remote.run(digits.name, [array]).outputs[0].shape == (1, 10)
