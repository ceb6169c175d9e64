"""The board answers RPC through each pipe: with the results of the debug port, and a fault told in words."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from hil_tests.programs import handwritten, line_of
from utvm.attach import Bench
from utvm.compiler import Library, load
from utvm.firmware import Firmware, build
from utvm.runtime import Pipe
from utvm.session import HostDriven
from utvm.session.fault import DeviceFault
from utvm.session.rpc import RpcError, RpcSession
from utvm.session.rpc_board import RpcBoard, on_bench

DIGITS = Path(__file__).parents[1] / "models" / "digits" / "digits_int8.tflite"
_UNDEFINED = handwritten("undefined", "  __builtin_trap();\n  return 0;")
_FAILING = handwritten("failing", "  return x[0];")
_ELEMENTS = 260  # More than one packet holds, and more than a pipe's buffer.
_COPYING = handwritten(
    "copying", f"  for (int i = 0; i < {_ELEMENTS}; i++) {{ y[i] = x[i]; }}\n  return 0;", elements=_ELEMENTS
)


@pytest.fixture(scope="module")
def digits(compile_for_board: Callable[..., Library]) -> Library:
    return compile_for_board(load(DIGITS))


@pytest.fixture(params=["console", "rtt", "semihosting"])
def pipe(request: pytest.FixtureRequest) -> Pipe:
    name: Pipe = request.param
    return name


@contextmanager
def serving(bench: Bench, digits: Library, pipe: Pipe) -> Iterator[tuple[RpcBoard, Callable[[], RpcSession]]]:
    """Serve the board; what it gives begins sessions, which end with it."""
    libraries = [digits, _UNDEFINED, _FAILING, _COPYING]
    image = build(bench.board, libraries, "rpc", pipe)
    with on_bench(bench, image, pipe=pipe) as ready, ExitStack() as stack:
        yield ready, lambda: stack.enter_context(RpcSession(ready.connect(), libraries, bench.count_unit))


@pytest.fixture
def served(board: Bench, digits: Library, pipe: Pipe) -> Iterator[tuple[RpcBoard, Callable[[], RpcSession]]]:
    with serving(board, digits, pipe) as both:
        yield both


def test_rpc_gives_what_the_debug_port_gives(
    board: Bench, digits: Library, pipe: Pipe, firmware: Callable[[Sequence[Library]], Firmware]
) -> None:
    inputs = [np.random.default_rng(seed).integers(-128, 128, (1, 8, 8, 1), np.int8) for seed in range(2)]
    with serving(board, digits, pipe) as (_, remote):
        over_rpc = remote()
        results = [over_rpc.run(digits.name, [array]) for array in inputs]
        told = over_rpc.stats()
    assert told["runs"] == len(inputs)
    assert told["crc_errors"] == 0
    assert told["stack_bytes"] > 0
    assert told["memory_bytes"] == told["memory_bytes_at_most"] > 0
    with HostDriven(board, firmware([digits])) as through_probe:
        for array, result in zip(inputs, results, strict=True):
            expected = through_probe.run(digits.name, [array])
            assert result.outputs[0].tobytes() == expected.outputs[0].tobytes()
            assert result.unit == expected.unit


def test_an_error_code_reaches_the_host(served: tuple[RpcBoard, Callable[[], RpcSession]]) -> None:
    _, remote = served
    with pytest.raises(RpcError, match="model failing returned error code -7"):
        remote().run("failing", [np.full(4, -7, np.int32)])


def test_the_longest_packets_pass_whole(served: tuple[RpcBoard, Callable[[], RpcSession]]) -> None:
    over_rpc = served[1]()
    ones = np.full(_ELEMENTS, -1, np.int32)  # Bytes FF: framing sends each of them twice.
    assert over_rpc.run("copying", [ones]).outputs[0].tobytes() == ones.tobytes()
    told = over_rpc.stats()
    assert (told["crc_errors"], told["packets_dropped"], over_rpc.link.crc_errors) == (0, 0, 0)
    assert told["bytes_received"] <= over_rpc.link.bytes_sent, "a pipe makes bytes up"


def test_a_fault_is_told_and_the_board_goes_on_after_a_reset(
    served: tuple[RpcBoard, Callable[[], RpcSession]], digits: Library
) -> None:
    ready, remote = served
    with pytest.raises(DeviceFault) as caught:
        remote().run("undefined", [np.zeros(4, np.int32)])
    assert caught.value.record.name == "UsageFault"
    assert f"undefined.c:{line_of(_UNDEFINED, '__builtin_trap')}" in caught.value.source_line
    ready.restart()
    array = np.zeros((1, 8, 8, 1), np.int8)
    assert remote().run(digits.name, [array]).outputs[0].shape == (1, 10)
