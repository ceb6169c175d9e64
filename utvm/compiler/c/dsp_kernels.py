# SPDX-License-Identifier: Apache-2.0
"""Kernels for cores with Arm's DSP extension, generated for a layer's numbers: their loops need every register.

Names encode the purpose:

- ``dsp_tile_BITS_ROUNDED_LIMIT``: four pixels of a convolution, weights of 8 or 16 bits
- ``dsp_dense_ROUNDED_LIMIT``: four channels of one pixel
- ``dsp_plane_ACROSS_DOWN_PITCH_PIXELS_CHANNELS_ROUNDED_LIMIT``: one channel of a depthwise convolution: strides,
  bytes between rows of the plane, pixels per output row, output channels
- ``dsp_depthwise_LINES_COPIES_`` and the same numbers: all channels of some output rows, from a plane of LINES
  lines; COPIES output channels per input channel
- ``dsp_lift_CHANNELS``: copies one channel of an image into a plane
- ``gathered_columns_ROWS_RUN``: gathers windows of ROWS rows of RUN bytes

ROUNDED is 1 if halves below zero must be rounded away from it, 0 if the activation passes no negative values.
LIMIT is 8 for all int8 values, 7 for values from 0. 16-bit weights are stored doubled, so sums are doubled, too.
"""

import re
from collections.abc import Callable

_UNROLLED = 8  # Pairs per iteration of a tile's loop.
_DENSE_UNROLLED = 4  # Groups of four values per iteration of a dense layer's loop.
_NUMBERS = {"tile": 3, "dense": 2, "plane": 7, "depthwise": 9, "lift": 1}
_NAME = re.compile(r"dsp_(tile|dense|plane|depthwise|lift)((?:_\d+)+)|(gathered)_columns((?:_\d+){2})")


def is_dsp_helper(name: str) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and (match[3] is not None or len(_numbers(match[2])) == _NUMBERS[match[1]])


def dsp_helper(name: str) -> str:
    match = _NAME.fullmatch(name)
    assert match is not None
    return _MAKERS[match[1] or match[3]](name, *_numbers(match[2] or match[4]))


def _numbers(text: str) -> list[int]:
    return [int(item) for item in text.split("_")[1:]]


_PORTABLE = """#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && !defined(__ARM_BIG_ENDIAN)
static __attribute__((noinline)) void {name}({parameters})
{{
{state}
    __asm__ volatile(
{lines}
        :
        : "r"(state)
        : "r0", "r1", "r2", "r3", "r12", "cc", "memory");
}}
#else
static inline void {name}({parameters})
{{
    {portable};
}}
#endif
"""


def _assembly(name: str, parameters: str, state: list[str], lines: list[str], portable: str) -> str:
    whole = ["push {r4-r11, lr}", *lines, "pop {r4-r11, lr}"]
    return _PORTABLE.format(
        name=name,
        parameters=parameters,
        state="\n".join(f"    {line}" for line in state),
        lines="\n".join(f'        "{line}\\n"' for line in whole),
        portable=portable,
    )


def _scale(sums: list[str], doubled: bool, rounded: int, limit: int) -> list[str]:
    """Multiply by r2, round, add r3, shift by r12, limit: several sums in turn."""
    lines = []
    for acc in sums:
        lines += [] if doubled else [f"lsl {acc}, {acc}, #1"]
        if rounded:
            lines += [f"smmulr {acc}, {acc}, r2", f"add {acc}, {acc}, {acc}, asr #31", f"add {acc}, r3"]
        else:
            lines.append(f"smmlar {acc}, {acc}, r2, r3")
        lines += [f"asr {acc}, r12", _limit(acc, limit)]
    return lines


def _limit(register: str, limit: int) -> str:
    return f"{'ssat' if limit == 8 else 'usat'} {register}, #{limit}, {register}"


def _limits(limit: int) -> str:
    return f"{-128 if limit == 8 else 0}, 127"


def _tile(name: str, bits: int, rounded: int, limit: int) -> str:
    wide = bits == 16
    weights = ["ldrd r2, r3, [r1], #8"] if wide else ["ldr r2, [r1], #4", "sxtb16 r3, r2, ror #8", "sxtb16 r2, r2"]
    # Sums of two channels start with their biases; pixels in an order that overwrites none.
    first = [
        *weights,
        "ldrd r12, lr, [r0, #8]",
        *("smlad r6, r12, r2, r4", "smlad r10, r12, r3, r8", "smlad r7, lr, r2, r4", "smlad r11, lr, r3, r8"),
        "ldrd r12, lr, [r0], #16",
        *("smlad r5, lr, r2, r4", "smlad r9, lr, r3, r8", "smlad r4, r12, r2, r4", "smlad r8, r12, r3, r8"),
    ]
    pair = [
        *weights,
        "ldrd r12, lr, [r0], #8",
        *("smlad r4, r12, r2, r4", "smlad r8, r12, r3, r8", "smlad r5, lr, r2, r5", "smlad r9, lr, r3, r9"),
        "ldrd r12, lr, [r0], #8",
        *("smlad r6, r12, r2, r6", "smlad r10, r12, r3, r10", "smlad r7, lr, r2, r7", "smlad r11, lr, r3, r11"),
    ]
    # Stack: columns, amount skipped in the first round, end of columns, output, three offsets, end of output.
    lines = [
        *("ldm %0, {r0-r8}", "push {r0-r7}", "mov r1, r8"),
        "1:",
        *("ldr r0, [sp]", "ldrd r4, r8, [r1], #8", *first),
        *("ldr r2, [sp, #4]", "add pc, r2", "nop"),
        "2:",
        *(f".rept {_UNROLLED}", *pair, ".endr"),
        *("ldr r2, [sp, #8]", "cmp r0, r2", "bne 2b"),
        *("ldm r1!, {r2, r3, r12}", *_scale(["r4", "r5", "r6", "r7"], wide, rounded, limit)),
        *("ldm r1!, {r2, r3, r12}", *_scale(["r8", "r9", "r10", "r11"], wide, rounded, limit)),
        *("add lr, sp, #12", "ldm lr, {r0, r2, r3, r12}"),
        *("strb r7, [r0, r12]", "strb r6, [r0, r3]", "strb r5, [r0, r2]", "strb r4, [r0], #1"),
        *("strb r11, [r0, r12]", "strb r10, [r0, r3]", "strb r9, [r0, r2]", "strb r8, [r0], #1"),
        *("str r0, [lr]", "ldr r2, [lr, #16]", "cmp r0, r2", "bne 1b"),
        "add sp, #32",
    ]
    state = [
        f"const uint32_t skipped = (uint32_t)((1 - pairs) & {_UNROLLED - 1}) * {4 * len(pair)}u;",
        "const int32_t last = (pixels - 1) * pitch;",
        "const uintptr_t state[9] = {",
        "    (uintptr_t)columns, skipped, (uintptr_t)(columns + 4 * pairs), (uintptr_t)output,",
        "    (uintptr_t)(pitch < last ? pitch : last), (uintptr_t)(2 * pitch < last ? 2 * pitch : last),",
        "    (uintptr_t)last, (uintptr_t)(output + channels), (uintptr_t)stream};",
    ]
    parameters = (
        "\n    int8_t *output, const int32_t *columns, const int32_t *stream, int32_t channels, int32_t pairs,\n"
        "    int32_t pixels, int32_t pitch"
    )
    portable = f"dsp_tile(output, columns, stream, channels, pairs, pixels, pitch, {int(wide)}, {_limits(limit)})"
    return _assembly(name, parameters, state, lines, portable)


def _dense(name: str, rounded: int, limit: int) -> str:
    def two(first: str, second: str) -> list[str]:
        return [
            "ldrd r8, r9, [r1], #8",
            *("sxtb16 r10, r8", "sxtb16 r8, r8, ror #8"),
            *(f"smlad {first}, r2, r10, {first}", f"smlad {second}, r2, r8, {second}"),
            *("sxtb16 r10, r9", "sxtb16 r9, r9, ror #8"),
            *(f"smlad {first}, r3, r10, {first}", f"smlad {second}, r3, r9, {second}"),
        ]

    four = ["ldrd r2, r3, [r0], #8", *two("r4", "r5"), *two("r6", "r7")]
    scaled = [
        line
        for item in ("r4", "r5", "r6", "r7")
        for line in ("ldm r1!, {r2, r3, r12}", *_scale([item], False, rounded, limit))
    ]
    # Stack: values, amount skipped in the first round, end of stream, output; r11: end of values.
    lines = [
        *("ldm %0, {r0-r3, r8, r11}", "push {r0-r3}", "mov r1, r8"),
        "1:",
        *("ldm r1!, {r4-r7}", "ldrd r0, r2, [sp]", "add pc, r2", "nop"),
        "2:",
        *(f".rept {_DENSE_UNROLLED}", *four, ".endr"),
        *("cmp r0, r11", "bne 2b"),
        *scaled,
        *("ldrd r2, r0, [sp, #8]", "strb r4, [r0], #1", "strb r5, [r0], #1", "strb r6, [r0], #1"),
        *("strb r7, [r0], #1", "str r0, [sp, #12]", "cmp r1, r2", "bne 1b"),
        "add sp, #16",
    ]
    state = [
        f"const uint32_t skipped = (uint32_t)(-(count / 4) & {_DENSE_UNROLLED - 1}) * {4 * len(four)}u;",
        "const uintptr_t state[6] = {",
        "    (uintptr_t)values, skipped, (uintptr_t)(stream + groups * (count + 16)), (uintptr_t)output,",
        "    (uintptr_t)stream, (uintptr_t)(values + count / 2)};",
    ]
    parameters = (
        "\n    int8_t *output, const int32_t *values, const int32_t *stream, int32_t groups, int32_t count"
    )
    return _assembly(
        name, parameters, state, lines, f"dsp_dense(output, values, stream, groups, count, {_limits(limit)})"
    )


def _plane(
    name: str, across: int, down: int, pitch: int, pixels: int, channels: int, rounded: int, limit: int
) -> str:
    weights = (("r2", "r3"), ("r4", "r5"), ("r6", "r7"))

    def scale(acc: str) -> list[str]:
        scaling = [f"smmlar {acc}, {acc}, r8, r9"]
        if rounded:
            scaling = [f"smmulr {acc}, {acc}, r8", f"add {acc}, {acc}, {acc}, asr #31", f"add {acc}, r9"]
        storing = [f"strb {acc}, [r1], #{channels}"]
        if channels > 255:
            storing = [f"strb {acc}, [r1]", f"addw r1, r1, #{channels}"]
        return [*scaling, f"asr {acc}, r12", _limit(acc, limit), *storing]

    def body(count: int) -> list[str]:
        lines = ["ldrd r10, r11, [sp, #8]"]
        for row, (one, other) in enumerate(weights):
            at = row * pitch
            lines += [f"ldrd r8, r9, [r0, #{at}]", f"smlad r10, r8, {one}, r10", f"smlabt r10, r9, {other}, r10"]
            if count == 2 and across == 1:
                lines += [f"smlatb r11, r8, {one}, r11", f"smlad r11, r9, {other}, r11"]
            elif count == 2:
                last = f"smlabt r11, r8, {other}, r11"
                lines += [f"ldr r8, [r0, #{at + 8}]", f"smlad r11, r9, {one}, r11", last]
        lines.append("ldrd r8, r9, [sp]")
        return [*lines, *(line for acc in ("r10", "r11")[:count] for line in scale(acc))]

    pairs, step = pixels // 2, 4 * across
    loop = ["1:", *body(2), f"add r0, #{step}", "cmp r0, lr", "bne 1b"] if pairs > 1 else []
    if pairs == 1:
        loop = [*body(2), f"add r0, #{step}"]
    # Stack: multiplier, offset, bias twice, size of a row's pairs, rows left.
    return _assembly(
        name,
        "int8_t *output, const int16_t *plane, const int32_t *stream, int32_t rows",
        [
            "const uintptr_t state[10] = {",
            "    (uintptr_t)stream[7], (uintptr_t)stream[8], (uintptr_t)stream[6], (uintptr_t)stream[6],",
            f"    {pairs * step}u, (uintptr_t)rows, (uintptr_t)plane, (uintptr_t)output, (uintptr_t)stream[9],",
            "    (uintptr_t)stream};",
        ],
        [
            *("ldm %0, {r0-r9}", "push {r0-r5}", "mov r12, r8"),
            *("mov r0, r6", "mov r1, r7", "ldm r9, {r2-r7}"),
            "2:",
            *(["ldr lr, [sp, #16]", "add lr, r0"] if pairs > 1 else []),
            *loop,
            *(body(1) if pixels % 2 else []),
            *_move(pitch * down - pairs * step),
            *("ldr r8, [sp, #20]", "subs r8, #1", "str r8, [sp, #20]", "bne 2b"),
            "add sp, #24",
        ],
        f"dsp_plane(output, plane, stream, rows, {across}, {down * pitch // 2}, {pitch // 2}, {pixels}, "
        f"{channels}, {_limits(limit)})",
    )


def _move(distance: int) -> list[str]:
    operation = "addw" if distance >= 0 else "subw"
    return [f"{operation} r0, r0, #{abs(distance)}"] if distance else []


def _depthwise(name: str, lines: int, copies: int, *plane: int) -> str:
    pitch, channels = plane[2] // 2, plane[4]
    return f"""static inline void {name}(
    int8_t *output, const int8_t *image, const int32_t *geometry, int32_t *plane, const int32_t *stream,
    int32_t row, int32_t column, int32_t rows)
{{
    depthwise_band(
        dsp_plane_{"_".join(map(str, plane))}, dsp_lift_{channels // copies}, output, image, geometry,
        (int16_t *)plane, stream, row, column, rows, {lines}, {pitch}, {copies});
}}
"""


def _lift(name: str, channels: int) -> str:
    def moves(indent: int, count: int) -> str:
        lines = [f"to[{place}] = from[{place * channels}];" for place in range(count)]
        lines += [f"to += {count};", f"from += {count * channels};"]
        return "\n".join(" " * indent + line for line in lines)

    rest = "\n".join(f"        if ((count & {part}) != 0) {{\n{moves(12, part)}\n        }}" for part in (4, 2, 1))
    return f"""/* Copies one channel of lines of an image, count pixels of each, into a plane. */
static inline void {name}(
    int16_t *plane, int32_t pitch, const int8_t *image, int32_t line, int32_t lines, int32_t count)
{{
    for (; lines > 0; --lines) {{
        int16_t *to = plane;
        const int8_t *from = image;
        for (const int16_t *end = plane + (count & ~7); to != end;) {{
{moves(12, 8)}
        }}
{rest}
        plane += pitch;
        image += line;
    }}
}}
"""


def _gather(name: str, rows: int, run: int) -> str:
    copies = "\n            source += line;\n".join(
        f"            memcpy(window + {run * row}, source, {run});" for row in range(rows)
    )
    return f"""/* Puts windows together in window, those inside row by row, and writes them as columns. */
static inline void {name}(
    int32_t *columns, const int8_t *image, const int32_t *geometry, int32_t row, int32_t column, int32_t pixels,
    int8_t *window)
{{
    const int32_t line = geometry[1] * geometry[2];
    for (int32_t pixel = 0; pixel < pixels; ++pixel) {{
        const int32_t y = row * geometry[5] - geometry[9];
        const int32_t x = column * geometry[6] - geometry[10];
        if (y >= 0 && y + {rows} <= geometry[0] && x >= 0 && x + geometry[4] <= geometry[1]) {{
            const int8_t *source = image + y * line + x * geometry[2];
{copies}
        }} else {{
            copy_window(window, image, geometry, row, column);
        }}
        (void)expand_columns(columns + pixel, window, {-(-rows * run // 4) * 4});
        if (++column == geometry[11]) {{
            column = 0;
            ++row;
        }}
    }}
}}
"""


_MAKERS: dict[str, Callable[..., str]] = {
    "tile": _tile,
    "dense": _dense,
    "plane": _plane,
    "depthwise": _depthwise,
    "lift": _lift,
    "gathered": _gather,
}
