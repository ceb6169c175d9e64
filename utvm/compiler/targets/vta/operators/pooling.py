# SPDX-License-Identifier: Apache-2.0
"""Max pooling on the ALU; loads convert int8 to int32."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, te, tirx

from utvm.compiler.targets.vta.env import ACC, Env
from utvm.compiler.targets.vta.operators import tiles
from utvm.errors import CompileError

_LEAST = -128


@dataclass(frozen=True)
class MaxPool:
    """Maximum of each window (NCHW before packing), padding ignored; function parameters: x, out."""

    shape: tuple[int, int, int, int]
    window: tuple[int, int]
    stride: int
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)

    def __post_init__(self) -> None:
        tiles.check_sizes(*self.shape, *self.window, self.stride)
        if min(self.out_size) < 1:
            raise CompileError(f"VTA: a window of {self.window} does not fit into {self.shape} with {self.padding}")
        tiles.check_padding(self.padding, self.window)

    @property
    def out_size(self) -> tuple[int, int]:
        return tiles.count_windows(self.shape, self.window, self.stride, self.padding)

    def schedule(self, env: Env) -> Any:
        lanes = (env.BATCH, env.BLOCK_IN)
        images, channels = -(-self.shape[0] // env.BATCH), -(-self.shape[1] // env.BLOCK_IN)
        x = te.placeholder((images, channels, *self.shape[2:], *lanes), "int8", "x")
        shape = (images, channels, *self.out_size, *lanes)
        function = te.create_prim_func([x, te.compute(shape, lambda *_: tirx.const(0, "int8"), name="out")])
        source, target = function.params
        blocks, height = self._best(env, channels).tile
        loaded = (blocks, min(self._rows(height), self.shape[2]), self.shape[3], *lanes)
        result_shape = (blocks, height, self.out_size[1], *lanes)
        wide, largest = (
            tirx.decl_buffer(item, "int32", name, scope=ACC)
            for item, name in ((loaded, "wide"), (result_shape, "largest"))
        )

        def of_blocks(image: Any, group: Any) -> Any:
            parts = [
                _Tile(self, source, target, wide, largest, image, group * blocks, row)
                for row in range(0, self.out_size[0], height)
            ]
            return tirx.SeqStmt([statement for part in parts for statement in part.statements()])

        body = _nest((images, channels // blocks), of_blocks)
        root = s_tir.SBlock([], [], [], "root", body, alloc_buffers=[wide, largest])
        return tiles.schedule_of(function.with_body(s_tir.SBlockRealize([], True, root)), "max_pool")

    def _rows(self, height: int) -> int:
        return (height - 1) * self.stride + self.window[0]

    def _best(self, env: Env, channels: int) -> tiles.TileChoice:
        height, width = self.out_size

        def rows(tile: tiles.Tile) -> int:
            return min(self._rows(tile[1]), self.shape[2])

        def needs(tile: tiles.Tile) -> tiles.Needs:
            return {ACC: tile[0] * (rows(tile) * self.shape[3] + tile[1] * width)}

        def turns(tile: tiles.Tile) -> tiles.Turns:
            loaded = tile[0] * rows(tile) * self.shape[3]
            window = self.window[0] * self.window[1]
            return tiles.Turns(
                channels // tile[0] * (height // tile[1]), loaded * env.lanes(ACC), tile[0] * tile[1] * window
            )

        # Two loops of an operation are hardware loops.
        return tiles.best_tile(env, (channels, height), needs, turns, False, lambda tile: min(*tile, width))


@dataclass(frozen=True)
class _Tile:
    """Output rows from ``row`` on, channel blocks from ``block`` on; windows are clipped at the image's edge."""

    pool: MaxPool
    source: Any
    target: Any
    wide: Any
    largest: Any
    image: Any
    block: Any
    row: int

    def statements(self) -> Sequence[Any]:
        blocks, rows, width, batch, lane = (int(extent) for extent in self.largest.shape)
        return [
            _nest((blocks, self._last - self._first, self.pool.shape[3], batch, lane), self._load),
            _nest((blocks, rows, width, batch, lane), lambda *at: tirx.BufferStore(self.largest, _number(_LEAST), at)),
            *self._compare(blocks, rows, width, (batch, lane)),
            _nest((blocks, rows, width, batch, lane), self._store),
        ]

    @property
    def _first(self) -> int:
        return max(self.row * self.pool.stride - self.pool.padding[0], 0)

    @property
    def _last(self) -> int:
        rows = int(self.largest.shape[1])
        below = (self.row + rows - 1) * self.pool.stride - self.pool.padding[0] + self.pool.window[0]
        return min(below, self.pool.shape[2])

    def _load(self, c: Any, i: Any, j: Any, b: Any, k: Any) -> Any:
        value = self.source[self.image, self.block + c, self._first + i, j, b, k].astype("int32")
        return tirx.BufferStore(self.wide, value, [c, i, j, b, k])

    def _store(self, c: Any, i: Any, j: Any, b: Any, k: Any) -> Any:
        value = self.largest[c, i, j, b, k].astype("int8")
        return tirx.BufferStore(self.target, value, [self.image, self.block + c, self.row + i, j, b, k])

    def _compare(self, blocks: int, rows: int, width: int, lanes: tuple[int, int]) -> list[Any]:
        pool, steps = self.pool, []
        above, _, left, _ = pool.padding
        for dy in range(pool.window[0]):
            y = _inside(dy - above, pool.stride, pool.shape[2], self.row, self.row + rows)
            for dx in range(pool.window[1]):
                x = _inside(dx - left, pool.stride, pool.shape[3], 0, width)
                if y and x:
                    begin = (y[0] * pool.stride + dy - above - self._first, x[0] * pool.stride + dx - left)
                    place = (y[0] - self.row, x[0])
                    steps.append(_nest((blocks, len(y), len(x), *lanes), self._larger(place, begin)))
        return steps

    def _larger(self, place: tuple[int, int], begin: tuple[int, int]) -> Callable[..., Any]:
        step = self.pool.stride

        def statement(c: Any, i: Any, j: Any, b: Any, k: Any) -> Any:
            at = [c, place[0] + i, place[1] + j, b, k]
            other = self.wide[c, begin[0] + i * step, begin[1] + j * step, b, k]
            return tirx.BufferStore(self.largest, tirx.max(self.largest[tuple(at)], other), at)

        return statement


def _inside(offset: int, step: int, extent: int, first: int, last: int) -> range:
    return range(max(first, -(offset // step)), min(last, (extent - 1 - offset) // step + 1))


def _nest(extents: Sequence[int], make: Callable[..., Any]) -> Any:
    counters = [tirx.Var(f"i{number}", "int32") for number in range(len(extents))]
    statement = make(*counters)
    for counter, extent in zip(reversed(counters), reversed(extents), strict=True):
        statement = tirx.For(counter, _number(0), _number(extent), tirx.ForKind.SERIAL, statement)
    return statement


def _number(value: int) -> Any:
    return tirx.const(value, "int32")
