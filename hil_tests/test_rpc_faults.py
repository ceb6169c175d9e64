# SPDX-License-Identifier: Apache-2.0
"""Fault reports over RPC: cause, location, callers, and the running operator."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from hil_tests.programs import endless_recursion, handwritten, line_of
from utvm.compiler import Library
from utvm.compiler.library import Call
from utvm.session.fault import DeviceFault
from utvm.session.rpc import RpcBoard, RpcSession

_CHAIN = handwritten(
    "chain",
    "  return chain_outer(x[0], y) + y[1];",
    "int32_t chain_inner(int32_t value, int32_t *y);\n"
    "int32_t chain_outer(int32_t value, int32_t *y);\n"
    "int32_t __attribute__((noinline)) chain_inner(int32_t value, int32_t *y) {\n"
    "  y[0] = value;\n"
    "  __builtin_trap(); /* here */\n"
    "}\n"
    "int32_t __attribute__((noinline)) chain_outer(int32_t value, int32_t *y) {\n"
    "  volatile int32_t room[40];\n"
    "  room[value & 31] = chain_inner(value + 1, y); /* second */\n"
    "  return room[3];\n"
    "}\n",
)
_ENDLESS = handwritten(
    "endless",
    "  return endless_wait(x[0], y) + y[1];",
    "int32_t endless_wait(int32_t value, int32_t *y);\n"
    "int32_t __attribute__((noinline)) endless_wait(int32_t value, int32_t *y) {\n"
    "  volatile int32_t *wait = y;\n"
    "  *wait = 1;\n"
    "  while (*wait + value != 0) { /* here */\n"
    "  }\n"
    "  return 0;\n"
    "}\n",
)
_ASSERTS = handwritten(
    "asserts", "  assert(x[0] == 41); /* here */\n  y[0] = x[0] + 1;\n  return 0;", "#include <assert.h>"
)
_DEEP = endless_recursion("deep")
_STEPS = dataclasses.replace(
    handwritten(
        "steps",
        "  UTVM_STEP(0u)\n  y[0] = 1;\n  UTVM_STEP(1u)\n  __builtin_trap();\n  return 0;",
        '#include "utvm_step.h"',
    ),
    calls=(Call("steps_first", "add", 0, (), ()), Call("steps_second", "divide", 0, (), ())),
)
_ALL = (_STEPS, _CHAIN, _ENDLESS, _ASSERTS, _DEEP)
_ZERO = [np.zeros(4, np.int32)]


@pytest.fixture
def remote(serve: Callable[[Sequence[Library]], RpcBoard]) -> Iterator[RpcSession]:
    with RpcSession(serve(_ALL), _ALL) as session:
        yield session


def _run_to_fault(remote: RpcSession, model: str) -> DeviceFault:
    with pytest.raises(DeviceFault) as caught:
        remote.run(model, _ZERO)
    return caught.value


def _reset_and_run(remote: RpcSession) -> None:
    remote.reset()
    assert remote.run("asserts", [np.full(4, 41, np.int32)]).outputs[0][0] == 42


def test_fault_has_its_callers(remote: RpcSession) -> None:
    fault = _run_to_fault(remote, "chain")
    assert fault.source_line.startswith("chain_inner at")
    assert fault.source_line.endswith(f"chain.c:{line_of(_CHAIN, '/* here */')}")
    assert fault.backtrace[0].startswith("chain_outer at")
    assert fault.backtrace[0].endswith(f":{line_of(_CHAIN, '/* second */')}")
    assert fault.backtrace[1].startswith("chain_run at")
    assert any(frame.startswith("utvm_run at") for frame in fault.backtrace)
    assert any(frame.startswith("utvm_main at") for frame in fault.backtrace)
    assert fault.running == "model chain"
    assert "called by chain_outer" in fault.message
    _reset_and_run(remote)


def test_fault_names_the_running_operator(remote: RpcSession) -> None:
    fault = _run_to_fault(remote, "steps")
    assert fault.running == "model steps, step 1 of 2: steps_second (divide)"
    assert "running: model steps, step 1 of 2" in fault.message
    _reset_and_run(remote)


@pytest.mark.needs("counter")
def test_watchdog_reports_where_a_run_hangs(remote: RpcSession) -> None:
    remote.limit_runs(200)
    fault = _run_to_fault(remote, "endless")
    assert "watchdog" in fault.record.meaning.name or fault.record.meaning.name == "SIGALRM"
    assert fault.source_line.startswith("endless_wait at")
    assert fault.backtrace[0].startswith("endless_run at")
    _reset_and_run(remote)


def test_assertion_is_reported_with_its_condition(remote: RpcSession) -> None:
    fault = _run_to_fault(remote, "asserts")
    assert fault.record.words.endswith(f"asserts.c:{line_of(_ASSERTS, '/* here */')}: x[0] == 41")
    assert "assertion failed: " in fault.message
    assert any(frame.startswith("asserts_run at") for frame in fault.backtrace)
    _reset_and_run(remote)


def test_stack_overflow_is_reported(remote: RpcSession) -> None:
    fault = _run_to_fault(remote, "deep")
    assert fault.running == "model deep"
    assert any(frame.startswith("deep_deeper at") for frame in (fault.source_line, *fault.backtrace))
    _reset_and_run(remote)
