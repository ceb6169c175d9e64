# SPDX-License-Identifier: Apache-2.0
"""Kernels for cores with byte vectors (MVE), generated for a length: their loops need every register.

``vector_tiles_UNROLLED_ROUNDS_PIXELS_ROUNDED`` keeps eight sums, of four channels and two pixels or eight channels
and one pixel. A window is ROUNDS runs of UNROLLED vectors of 16 bytes. ROUNDED is 1 if halves below zero must be
rounded away from it. ``vector_row_...``, ``vector_pixels_...`` and ``vector_windows_...`` pass a kernel to a C
helper.
"""

import re

_MOST_UNROLLED = 18  # Maximum vectors with unrolled products; longer windows use a loop.
_NAME = re.compile(r"vector_(tiles|row|pixels|windows)_(\d+)_(\d+)_([12])_([01])")
_SUMS = ("r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr")


def is_vector_helper(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def vector_helper(name: str) -> str:
    match = _NAME.fullmatch(name)
    assert match is not None
    kind, unrolled, rounds, pixels, rounded = match[1], *map(int, match.groups()[1:])
    if kind != "tiles":
        return _handing(name, kind, name.replace(kind, "tiles", 1))
    plain = (
        f"vector_tiles(call, {unrolled}, {rounds}, 1)"
        if pixels == 1
        else f"vector_pairs(call, {unrolled}, {rounds})"
    )
    lines = "\n".join(f'        "{line}\\n"' for line in _kernel(unrolled, rounds, pixels, bool(rounded)))
    clobbered = ", ".join(f'"{item}"' for item in ("r0", "r1", "r2", "r3", "r12", *(f"q{n}" for n in range(8))))
    return f"""#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN)
/* vector_tiles for one length. Sums: r0 r2 r4 r6 of four channels, r8 r10 r12 lr of the next pixel or channels;
 * r1 stream, r3 and r5 pixels, r7 step, r9 output, r11 the end of the stream or of the window. */
static __attribute__((noinline)) void {name}(const struct vector_tiles *call)
{{
    __asm__ volatile(
{lines}
        :
        : "r"(call)
        : {clobbered}, "cc", "memory");
}}
#else
static inline void {name}(const struct vector_tiles *call)
{{
    {plain};
}}
#endif
"""


def _handing(name: str, kind: str, kernel: str) -> str:
    return f"""static inline void {name}(
    int8_t *output, const int8_t *image, const int32_t *geometry, int8_t *scratch, const int32_t *stream,
    int32_t row)
{{
    vector_{kind}({kernel}, output, image, geometry, scratch, stream, row);
}}
"""


def _kernel(unrolled: int, rounds: int, pixels: int, rounded: bool) -> list[str]:
    looped = rounds > 1 and unrolled * rounds > _MOST_UNROLLED
    return [
        *_beginning(looped, pixels),
        *_tile(unrolled, rounds, pixels, rounded, looped),
        *_ending(pixels, looped),
    ]


def _beginning(looped: bool, pixels: int) -> list[str]:
    """Stack: sums, pixels, output and stream, pairs, next, output_next, mask, end, span."""
    offsets = ["vidup.u16 q7, r2, #1"]
    if pixels == 2:
        # Halfwords 0, apart, 1, apart + 1, 2, apart + 2, 3, apart + 3.
        offsets = [
            "vidup.u32 q7, r2, #1",
            "ldr r1, [r0, #36]",
            "lsl r1, r1, #16",
            "mov r2, #65537",
            "vmul.i32 q7, q7, r2",
            "vadd.i32 q7, q7, r1",
        ]
    return [
        "push {r4-r11, lr}",
        "mov r0, %0",
        "sub sp, #76",
        *("ldrd r1, r2, [r0]", "strd r1, r2, [sp, #32]"),
        *("ldrd r1, r2, [r0, #8]", "strd r1, r2, [sp, #40]"),
        *("ldrd r11, r1, [r0, #16]", "str r1, [sp, #48]"),
        *("ldrd r7, r1, [r0, #24]", "ldr r2, [r0, #32]", "strd r1, r2, [sp, #52]"),
        *("ldrd r1, r2, [r0, #52]", "str r1, [sp, #60]", *(["strd r11, r2, [sp, #64]"] if looped else [])),
        *("ldrd r1, r2, [r0, #40]", "vdup.16 q4, r1", "vdup.16 q5, r2"),
        *("ldr r1, [r0, #48]", "vdup.16 q6, r1"),
        "mov r2, #0",
        *offsets,
        "1:",
        "ldrd r3, r5, [sp, #32]",
        "ldrd r9, r1, [sp, #40]",
    ]


def _tile(unrolled: int, rounds: int, pixels: int, rounded: bool, looped: bool) -> list[str]:
    step = ["add r3, r3, r7", *(["add r5, r5, r7"] if pixels == 2 else [])]
    products = [f".rept {unrolled}", *_products(pixels), ".endr"]
    if looped:
        window = ["ldr r11, [sp, #68]", "add r11, r3, r11", "5:", *products, *step, "cmp r3, r11", "bne.w 5b"]
    else:
        window = [line for number in range(rounds) for line in ((step if number else []) + products)]
    # Both pixels use the same channels.
    last = "!" if pixels == 1 else ""
    scale = ["vldrw.u32 q2, [r1], #16", "vldrw.u32 q3, [r1], #16"]
    return [
        "2:",
        *(f"ldm r1{last}, {{r0, r2, r4, r6}}", "ldm r1!, {r8, r10, r12, lr}"),
        *window,
        "ldrd r3, r5, [sp, #32]",
        *scale,
        f"stm sp, {{{', '.join(_SUMS)}}}",
        "vldrw.u32 q0, [sp]",
        *_scale("q0", rounded),
        *(scale if pixels == 1 else []),
        "vldrw.u32 q1, [sp, #16]",
        *_scale("q1", rounded),
        *("vqmovnb.s32 q0, q0", "vqmovnt.s32 q0, q1"),
        *("vqadd.s16 q0, q0, q4", "vmax.s16 q0, q0, q5", "vmin.s16 q0, q0, q6"),
    ]


def _products(pixels: int) -> list[str]:
    lines = ["vldrb.u8 q0, [r3], #16", *(["vldrb.u8 q1, [r5], #16"] if pixels == 2 else [])]
    for number in range(4 if pixels == 2 else 8):
        weights = f"q{2 + number % 2}"
        lines += [f"vldrw.u32 {weights}, [r1], #16", f"vmladava.s8 {_SUMS[number]}, q0, {weights}"]
        if pixels == 2:
            lines.append(f"vmladava.s8 {_SUMS[4 + number]}, q1, {weights}")
    return lines


def _scale(sums: str, rounded: bool) -> list[str]:
    """Multiply and round, then shift and round again, as gemmlowp does, with a correction below zero."""
    free = "q1" if sums == "q0" else "q2"
    away = [f"vand {free}, {sums}, q3", f"vshr.s32 {free}, {free}, #31", f"vqadd.s32 {sums}, {sums}, {free}"]
    return [f"vqrdmulh.s32 {sums}, {sums}, q2", *(away if rounded else []), f"vrshl.s32 {sums}, {sums}, q3"]


def _ending(pixels: int, looped: bool) -> list[str]:
    end = ["ldr r11, [sp, #64]"] if looped else []
    return [
        *end,
        "cmp r1, r11",
        "beq 3f",
        "vstrb.16 q0, [r9, q7]",
        f"add r9, r9, #{8 // pixels}",
        "b.w 2b",
        "3:",
        "ldr r0, [sp, #60]",
        "vmsr p0, r0",
        "vpst",
        "vstrbt.16 q0, [r9, q7]",
        *("ldr r0, [sp, #48]", "subs r0, r0, #1", "str r0, [sp, #48]", "beq 4f"),
        *("ldrd r0, r2, [sp, #52]", "ldrd r4, r6, [sp, #32]", "add r4, r4, r0", "add r6, r6, r0"),
        *("strd r4, r6, [sp, #32]", "ldr r4, [sp, #40]", "add r4, r4, r2", "str r4, [sp, #40]"),
        "b.w 1b",
        "4:",
        "add sp, #76",
        "pop {r4-r11, lr}",
    ]
