# SPDX-License-Identifier: Apache-2.0
"""Loop nests around one statement with indices linear in the loop variables, and on-chip buffers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from utvm.compiler.targets.vta.env import ACC, DOUBLE_BUFFER, MEMORY_OF, Env
from utvm.errors import CompileError, DoesNotFitError

TensorLoad = tvm.ir.expr.TensorLoad
ANALYZER = tvm.sym.Analyzer()


@dataclass(frozen=True)
class Nest:
    """A statement and the loops that contain only it, outermost first."""

    loops: tuple[tuple[Any, int], ...]
    store: Any

    @property
    def variables(self) -> list[Any]:
        return [variable for variable, _ in self.loops]


@dataclass(frozen=True)
class Dim:
    """A hardware loop; ``strides`` per index, ``before`` and ``after``: padding iterations at either end."""

    extent: int
    strides: tuple[int, ...]
    before: Any = 0
    after: Any = 0

    @property
    def is_padded(self) -> bool:
        return not (_is_zero(self.before) and _is_zero(self.after))


def _is_zero(value: Any) -> bool:
    return bool(ANALYZER.can_prove_equal(value, 0))


def read_nest(statement: Any) -> Nest | None:
    """Return a statement as a nest; None if its loops contain more than one store."""
    loops = []
    while True:
        if isinstance(statement, tirx.For):
            if statement.annotations or not isinstance(statement.extent, tirx.IntImm):
                return None
            loops.append((statement.loop_var, int(statement.extent)))
            statement = statement.body
        elif isinstance(statement, tirx.SeqStmt) and len(statement.seq) == 1:
            statement = statement.seq[0]
        else:
            return Nest(tuple(loops), statement) if isinstance(statement, tirx.BufferStore) else None


def affine(index: Any, variables: Sequence[Any]) -> tuple[list[int], Any]:
    """Return each loop's stride in an index, and the index with all loop variables 0."""
    parts = tvm.sym.detect_linear_equation(index, list(variables)) if variables else [index]
    parts = [ANALYZER.simplify(part) for part in parts]
    if not parts or not all(isinstance(part, tirx.IntImm) for part in parts[:-1]):
        raise CompileError(f"VTA: the index {index} is not a linear function of its loops")
    return [int(part) for part in parts[:-1]], parts[-1]


def dims_of(nest: Nest, *strides: Sequence[int]) -> list[Dim]:
    return [Dim(extent, steps) for (_, extent), steps in zip(nest.loops, zip(*strides, strict=True), strict=True)]


def in_elements(dims: Sequence[Dim], lanes: int) -> list[Dim]:
    """Remove the loops over one element of a memory, which must traverse it contiguously."""
    left = sorted((dim for dim in dims if dim.extent != 1 or dim.is_padded), key=lambda dim: -max(dim.strides))
    covered = 1
    while covered < lanes:
        if not left or left[-1].is_padded or any(stride != covered for stride in left[-1].strides):
            raise CompileError(
                f"VTA: the innermost loops cover {covered} of the {lanes} numbers of an element",
                "the last dimensions of a buffer are BATCH and a block",
            )
        inner = left.pop()
        rest = lanes // covered
        shared = min(inner.extent, rest)
        if inner.extent % shared or rest % shared:
            raise CompileError(f"VTA: a loop of {inner.extent} does not divide into elements of {lanes} numbers")
        if inner.extent > shared:
            left.append(Dim(inner.extent // shared, tuple(stride * shared for stride in inner.strides)))
        covered *= shared
    if any(stride % lanes for dim in left for stride in dim.strides):
        raise CompileError(f"VTA: a loop steps by {left[-1].strides} numbers, where an element has {lanes}")
    return [replace(dim, strides=tuple(stride // lanes for stride in dim.strides)) for dim in left]


def merge(dims: Sequence[Dim]) -> list[Dim]:
    """Merge two loops if the outer one continues where the inner one ends."""
    merged_dims: list[Dim] = []
    for dim in reversed(dims):
        if dim.extent == 1 and not dim.is_padded:
            continue
        if merged_dims and not dim.is_padded and not merged_dims[-1].is_padded:
            inner = merged_dims[-1]
            if all(outer == step * inner.extent for outer, step in zip(dim.strides, inner.strides, strict=True)):
                merged_dims[-1] = Dim(dim.extent * inner.extent, inner.strides)
                continue
        merged_dims.append(dim)
    return merged_dims[::-1]


def element(base: Any, lanes: int) -> Any:
    if not _is_zero(tirx.floormod(base, lanes)):
        raise CompileError(f"VTA: {base} does not begin at an element of {lanes} numbers")
    return ANALYZER.simplify(tirx.floordiv(base, lanes))


def repeat(dims: Sequence[Dim], offsets: Sequence[Any], make: Any) -> Any:
    if not dims:
        return make([ANALYZER.simplify(offset) for offset in offsets])
    counter = tirx.Var("i", "int32")
    stepped = [offset + counter * stride for offset, stride in zip(offsets, dims[0].strides, strict=True)]
    body = repeat(dims[1:], stepped, make)
    return tirx.For(counter, tirx.const(0, "int32"), tirx.const(dims[0].extent, "int32"), tirx.ForKind.SERIAL, body)


def call(name: str, *arguments: Any) -> Any:
    return tirx.Evaluate(tirx.call_extern("int32", name, *arguments))


@dataclass(frozen=True)
class _Buffer:
    """An on-chip buffer; ``turning`` is the iteration that selects one of two copies, None for a single one."""

    scope: str
    elements: int
    loops: tuple[Any, ...]
    turning: Any


@dataclass
class OnChip:
    """A function's on-chip buffers; the ALU overwrites its first operand unless that is read again."""

    env: Env
    body: Any
    _buffers: dict[Any, _Buffer] = field(default_factory=dict)
    _reads: list[tuple[int, Any]] = field(default_factory=list)
    _first: dict[Any, tuple[int, Any]] = field(default_factory=dict)
    _over: dict[Any, Any] = field(default_factory=dict)
    _base: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._collect(self.body, (), None)
        self._over = {into: first for into, (turn, first) in self._first.items() if self._is_last(into, turn, first)}
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
            self._collect(statement.body, inside, _turn(inside) if DOUBLE_BUFFER in statement.annotations else turning)

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
