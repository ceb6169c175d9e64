# SPDX-License-Identifier: Apache-2.0
"""Print the calls of operators in ``NAME_run``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from utvm.compiler.c.printer import CFunction
from utvm.compiler.memory.graph import Graph, Location, Step
from utvm.compiler.memory.plan import Plan

_LINE = 110  # Columns of a line of C.
_TURN = "turn"  # Variable of a loop.


class Calls:
    """Statements of ``NAME_run``."""

    def __init__(self, name: str, graph: Graph, plan: Plan, operators: Mapping[str, CFunction]) -> None:
        self._name = name
        self._graph = graph
        self._plan = plan
        self._operators = operators

    def step(self, index: int, step: Step) -> list[str]:
        lines: list[str] = []
        for turns, calls in _loops(step.calls):
            statements = [line for call in calls for line in self._call(index, call)]
            if turns > 1:
                loop = f"for (int32_t {_TURN} = 0; {_TURN} < {turns}; ++{_TURN}) {{"
                statements = [loop, *(f"    {line}" for line in statements), "}"]
            lines += statements
        return lines

    def _call(self, index: int, step: Step) -> list[str]:
        if not step.function:
            (source,), (target,) = step.reads, step.writes
            if source.kind == "rows":
                return self._read_rows(target, step.copied_bytes)
            addresses = f"{self._address(target, writable=True)}, {self._address(source)}"
            within = (source.kind, source.number) == (target.kind, target.number)
            return [f"{'move_rows' if within else 'memcpy'}({addresses}, {step.copied_bytes});"]
        operator = self._operators[step.function]
        arguments = [self._address(place) for place in step.reads]
        arguments += [self._address(place, writable=True) for place in step.writes]
        if operator.workspace_bytes:
            arguments.append(self._in_arena(Location("workspace", index)))
        head, tail = f"{operator.name}(", ");"
        if operator.checked:
            head, tail = f"if ({head}", ") != 0) {"
        whole = f"{head}{', '.join(arguments)}{tail}"
        lines = [head, *(f"    {argument}," for argument in arguments[:-1]), f"    {arguments[-1]}{tail}"]
        call = [whole] if len(whole) + 4 <= _LINE else lines
        return [*call, f"    return {self._name.upper()}_INDEX_OUT_OF_RANGE;", "}"] if operator.checked else call

    def _read_rows(self, target: Location, size: int) -> list[str]:
        (image,) = self._graph.inputs
        call = f"rows->read(rows->context, {self._address(target, writable=True)}, {size // image.row_bytes})"
        return [f"code = {call};", "if (code != 0) {", "    return code;", "}"]

    def _in_arena(self, place: Location) -> str:
        placement = self._plan.placement(place.kind, place.number)
        return f"{placement.region} + {placement.offset + place.offset}{_turn_offset(place)}"

    def _address(self, place: Location, *, writable: bool = False) -> str:
        if place.kind == "constant":
            return constant_name(self._name, place.number)
        if place.kind == "state":
            return f"{self._name}_state_{place.number}"
        tensors = {"input": self._graph.inputs, "buffer": self._graph.buffers, "output": self._graph.outputs}
        c_type = tensors[place.kind][place.number].c_type
        pointer = f"({c_type} *)" if writable else f"(const {c_type} *)"
        if place.kind == "buffer":
            return f"{pointer}({self._in_arena(place)})"
        address = f"{place.kind}s[{place.number}]"
        if place.offset == place.step == 0:
            return pointer + address
        byte = "uint8_t *" if writable else "const uint8_t *"
        return f"{pointer}(({byte}){address} + {place.offset}{_turn_offset(place)})"


def constant_name(name: str, number: int) -> str:
    return f"{name}_constant_{number}"


def _turn_offset(place: Location) -> str:
    return f" + {place.step} * {_TURN}" if place.step else ""


def _loops(calls: Sequence[Step]) -> Iterator[tuple[int, Sequence[Step]]]:
    """Yield loops of calls: how often, and the calls with the bytes by which their tensors move in a turn."""
    while calls:
        names = [call.function for call in calls]
        periods = (size for size in range(1, len(calls) // 2 + 1) if names[:size] == names[size : 2 * size])
        loops = [(1, calls[:1]), *(_loop(calls, period) for period in periods)]
        turns, body = max(loops, key=lambda loop: (loop[0] > 1) * loop[0] * len(loop[1]))
        yield turns, body
        calls = calls[turns * len(body) :]


def _loop(calls: Sequence[Step], period: int) -> tuple[int, Sequence[Step]]:
    body = [_with_steps(*pair) for pair in zip(calls[:period], calls[period : 2 * period], strict=True)]
    for turns in range(1, len(calls) // period):
        others = calls[turns * period : (turns + 1) * period]
        if any(_in_turn(call, turns) != other for call, other in zip(body, others, strict=True)):
            return turns, body
    return len(calls) // period, body


def _with_steps(call: Step, follower: Step) -> Step:
    others = iter((*follower.reads, *follower.writes))
    return _with_places(call, lambda place: replace(place, step=next(others, place).offset - place.offset))


def _in_turn(call: Step, turn: int) -> Step:
    return _with_places(call, lambda place: replace(place, offset=place.offset + turn * place.step, step=0))


def _with_places(call: Step, change: Callable[[Location], Location]) -> Step:
    return replace(call, reads=tuple(map(change, call.reads)), writes=tuple(map(change, call.writes)))
