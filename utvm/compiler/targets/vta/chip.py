# SPDX-License-Identifier: Apache-2.0
"""Where buffers lie in the memories on the chip."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import tirx

from utvm.compiler.targets.vta.env import ACC, DOUBLE_BUFFER, MEMORY_OF, Env
from utvm.compiler.targets.vta.nest import TensorLoad, read_nest
from utvm.errors import CompileError, DoesNotFitError


@dataclass(frozen=True)
class _Buffer:
    """A buffer on the chip.

    Attributes:
        elements: how many of its memory it takes, once.
        turning: of which turn there are two of it, over all loops around; None where there is one.
    """

    scope: str
    elements: int
    loops: tuple[Any, ...]
    turning: Any


@dataclass
class OnChip:
    """The memories on the chip, with the buffers of one function in them, one after the other.

    The ALU writes over its first operand, so its result lies where that lay, unless the operand is read again.
    """

    env: Env
    body: Any
    _buffers: dict[Any, _Buffer] = field(default_factory=dict)
    _reads: list[tuple[int, Any]] = field(default_factory=list)
    _first: dict[Any, tuple[int, Any]] = field(default_factory=dict)
    _over: dict[Any, Any] = field(default_factory=dict)
    _base: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._collect(self.body, (), None)
        self._over = {
            into: first for into, (turn, first) in self._first.items() if self._is_last(into, turn, first)
        }
        used: Counter[str] = Counter()
        for key, buffer in self._buffers.items():
            if key not in self._over:
                base = used[buffer.scope]
                used[buffer.scope] += buffer.elements * (1 if buffer.turning is None else 2)
                self._base[key] = base if buffer.turning is None else base + buffer.turning % 2 * buffer.elements
        for scope, elements in used.items():
            if elements > self.env.depth(scope):
                raise DoesNotFitError(
                    f"VTA: {elements} elements of {MEMORY_OF[scope]} are needed, of {self.env.depth(scope)}",
                    "make the tiles smaller",
                )

    def base(self, buffer: Any) -> Any:
        """The first element of a buffer: a number, or an expression of a loop's counter."""
        return self._base[self._root(buffer)]

    def share(self, one: Any, other: Any) -> bool:
        return bool(self._root(one).same_as(self._root(other)))

    def _root(self, buffer: Any) -> Any:
        while buffer in self._over:
            buffer = self._over[buffer]
        return buffer

    def _collect(self, statement: Any, loops: tuple[Any, ...], turning: Any) -> None:
        if isinstance(statement, tirx.SeqStmt):
            for item in statement.seq:
                self._collect(item, loops, turning)
        elif isinstance(statement, tirx.AllocBuffer):
            self._allocate(statement.buffer, loops, turning)
        elif nest := read_nest(statement):
            self._note(nest.store)
        elif isinstance(statement, tirx.For):
            inside = (*loops, statement)
            self._collect(
                statement.body, inside, _turn(inside) if DOUBLE_BUFFER in statement.annotations else turning
            )

    def _allocate(self, buffer: Any, loops: tuple[Any, ...], turning: Any) -> None:
        scope = buffer.scope()
        if scope not in MEMORY_OF:
            raise CompileError(
                f"VTA: {buffer.name} is in {scope or 'no scope'}, which is not on the chip",
                f"set one of the scopes {', '.join(MEMORY_OF)}",
            )
        numbers = 1
        for extent in buffer.shape:
            numbers *= int(extent)
        elements = -(-numbers // self.env.lanes(scope))
        self._buffers[buffer] = _Buffer(scope, elements, loops, turning)

    def _note(self, store: Any) -> None:
        turn = len(self._reads)
        loads: list[Any] = []
        tvm_ffi.structural_walk(store.value, (TensorLoad, loads.append), order="pre")
        self._reads += [(turn, load.source) for load in loads]
        into = store.buffer
        first = next((load.source for load in loads if load.source.scope() == ACC), None)
        if store.buffer.scope() == ACC and first is not None and first != into and into not in self._first:
            self._first[into] = (turn, first)

    def _is_last(self, into: Any, turn: int, source: Any) -> bool:
        again = any(later > turn and key == source for later, key in self._reads)
        return not again and self._buffers[into].loops == self._buffers[source].loops


def _turn(loops: tuple[Any, ...]) -> Any:
    number: Any = 0
    for loop in loops:
        number = number * loop.extent + loop.loop_var
    return number
