# SPDX-License-Identifier: Apache-2.0
"""Modelled cycles equal the manuals' tables and the geometry of the boards' caches.

Programs run with two numbers of rounds: the difference is the cost of the additional rounds, without cold misses.
"""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.virtual.target import RAM, Target
from tests.virtual.test_counting import CYCCNT_ON
from utvm import boards
from utvm.errors import ConfigError
from utvm.virtual.spec import FLASH_BYTES, WAITS_REGISTER, CacheSpec, CoreName

_ROUNDS = (10, 30)
_LOOP = "subs r1, #1\nbne.w 1b"
_M4_LOOP, _M7_WAIT, _M4_WAIT = 2 + 1, 7 + 4, 6  # SUBS, B and P of 1


def cycles_per_round(
    folder: Path,
    body: str,
    board: str,
    data: int = 0x08000000,
    core: CoreName | None = None,
    timing: Mapping[str, object] | None = None,
) -> float:
    counts = []
    for rounds in _ROUNDS:
        (folder / str(rounds)).mkdir()
        with Target(folder / str(rounds), board, cycles=True, core=core, timing=timing) as target:
            program = f"movs r1, #{rounds}\nldr r7, [r0, #4]\n{body}\nldr r6, [r0, #4]\ndone"
            cpu = f".cpu {core}\n" if core else ""
            enable = "ldr r4, =0xE000ED88\nldr r5, =0x00F00000\nstr r5, [r4]\ndsb\nisb"
            target.run(f"handler reset\n{cpu}{enable}\n{CYCCNT_ON}\nldr r2, ={data:#x}\n{program}")
            counts.append(target.register(6) - target.register(7))
    return (counts[1] - counts[0]) / (_ROUNDS[1] - _ROUNDS[0])


def _blocks(count: int, distance: int) -> str:
    """A loop of branches from block to block."""
    blocks = [f".balign {distance}\n{number}: b.w {number + 1}f" for number in range(1, count)]
    return "\n".join(["b.w 1f\n.ltorg", *blocks, f".balign {distance}\n{count}: {_LOOP}"])


@pytest.mark.parametrize(
    ("body", "cycles"),
    [
        # ARM DDI 0439, 3.3.1 and 3.3.2: a load takes 2, and 1 directly after another independent load.
        ("", 0),
        ("ldr r3, [r2]", 2),
        ("ldr r3, [r2]\nldrb r4, [r2, #8]\nldrsh.w r5, [r2, r3]", 2 + 1 + 1),
        ("ldr r3, [r2]\nadds r5, #1\nldr r4, [r2]", 2 + 1 + 2),
        ("mov r4, r2\nnop\nldr r4, [r4]\nldr r4, [r2]", 1 + 1 + 2 + 1),
        # An address that a computation just before gives is not forwarded. Nothing is pipelined after a store.
        ("mov r4, r2\nldr r4, [r4]", 1 + 2 + 1),
        ("str r3, [r2]\nldr r3, [r2]", 1 + 1 + 2),
        # Multiple registers: 1, and 1 for each register. Stores have a buffer.
        ("ldmia.w r2, {r3, r4, r5, r8}", 1 + 4),
        ("ldrd r3, r4, [r2]\nstrd r3, r4, [r2]", 3 + 3),
        ("push {r3, r4}\npop {r3, r4}", 3 + 3),
        ("str r3, [r2]\nstrb.w r3, [r2, #1]", 1 + 1),
        # A store to an index takes 2, and 1 directly after a load.
        ("strb.w r3, [r2, r1]", 2),
        ("ldr r3, [r2]\nstrb.w r3, [r2, r1]", 2 + 1),
        # All multiplications take 1; they are no loads.
        ("muls r3, r4\nmla r3, r4, r5, r3\nsmlal r3, r4, r5, r8\nsmlad r3, r4, r5, r3", 4),
        # IT is folded into a preceding 16-bit instruction; a skipped instruction takes 1.
        ("cmp r1, r1\nite eq\naddeq r3, #1\nldrne r3, [r2]", 1 + 0 + 1 + 1),
        ("cmp.w r1, r1\nit eq\naddeq r3, #1", 1 + 1 + 1),
        # 7.2.3 of the manual: VLDR 2, VADD 1, VFMA 3, VDIV and VSQRT 14.
        ("vldr s0, [r2]\nvadd.f32 s1, s0, s0\nvfma.f32 s2, s0, s1", 2 + 1 + 3),
        ("vdiv.f32 s0, s1, s2\nvsqrt.f32 s3, s4\nvmov r3, r4, s0, s1", 14 + 14 + 2),
        # 3.3.1: P is 1 to 3. A load of PC, after which 3 cycles reload the pipeline, takes 5, and a table branch 6.
        (".balign 4\nbl 2f\nb.w 3f\n.balign 4\n2: bx lr\n.balign 4\n3:", 2 * (1 + 1) + 1 + 3),
        (".balign 4\nadr.w r3, 2f+1\npush {r3}\nldr.w pc, [sp], #4\n.balign 4\n2:", 1 + 2 + 2 + 3),
        (".balign 4\nmovs r3, #0\nnop.w\ntbb [pc, r3]\n.byte 1, 0\n.balign 4\n2:", 2 + 6),
        # A 32-bit branch target that crosses a word takes 1 more.
        (".balign 4\nb.n 2f\nnop\nnop\n2: nop.w\nnop", 1 + 1 + 1 + 1 + 1),
    ],
)
def test_cortex_m4_cycles_equal_the_manual(tmp_path: Path, body: str, cycles: int) -> None:
    assert cycles_per_round(tmp_path, f".balign 32\n1: {body}\n{_LOOP}", "stm32f407", RAM) == _M4_LOOP + cycles


@pytest.mark.parametrize(
    ("body", "plain", "misses"),
    [
        # 64 lines of 16 bytes for code, fully associative; 65 lines evict each other.
        (_blocks(64, 16), 63 * 2 + _M4_LOOP, 0),
        (_blocks(65, 16), 64 * 2 + _M4_LOOP, 65),
        # Eight lines for data.
        ("".join(f"ldr r3, [r2, #{16 * line}]\nnop\n" for line in range(8)), 8 * 3 + _M4_LOOP, 0),
        ("".join(f"ldr r3, [r2, #{16 * line}]\nnop\n" for line in range(9)), 9 * 3 + _M4_LOOP, 9),
    ],
)
def test_art_caches_lines(tmp_path: Path, body: str, plain: int, misses: int) -> None:
    code = body if "1:" in body else f".balign 16\n1: {body}{_LOOP}"
    assert cycles_per_round(tmp_path, code, "stm32f407") == plain + _M4_WAIT * misses


@pytest.mark.parametrize(
    ("body", "cycles"),
    [
        # From LLVM's ARMScheduleM7.td. SUBS waits for no operand, and BNE one cycle for its flags.
        ("", 1 + 1),
        ("adds r3, #1\nadds r4, #1\nadds r5, #1\nmov r8, r5", 3 + 1),
        ("adds r3, #1\nadds r3, #1\nadds r3, #1\nadds r3, #1", 4 + 1),
        # A loaded word is ready in the next cycle, a byte one cycle later.
        ("ldr r3, [r2]\nadds r4, #1\nadds r3, #1\nadds r5, #1", 2 + 2),
        ("ldrb r3, [r2]\nadds r4, #1\nadds r3, #1\nadds r5, #1", 3 + 2),
        # Two loads from different banks (ARM DDI 0489: D0TCM and D1TCM) pair; stores do not.
        ("ldr r3, [r2]\nldr r4, [r2, #4]", 1 + 2),
        ("ldr r3, [r2]\nldr r4, [r2, #8]", 2 + 2),
        ("str r3, [r2]\nstr r4, [r2, #4]\nadds r4, #0", 2 + 2),
        # Addresses and shifted operands are needed early, sums and stored values late.
        ("adds r2, #0\nldr r4, [r2]", 3 + 1),
        ("adds r4, #1\nadd r3, r5, r4, lsl #1", 3 + 1),
        ("adds r3, #1\nstr r3, [r2]", 1 + 2),
        ("mla r3, r4, r5, r3\nadds r2, #0\nmla r3, r4, r5, r3\nadds r4, #0", 2 + 2),
        ("muls r3, r4\nadds r3, #1", 3 + 1),
        ("ssat r3, #8, r3\nadds r5, #1\nadds r3, #1", 3 + 1),
        # One shifter; instructions of the DSP extension are the first of a pair.
        ("add r3, r4, r5, lsl #1\nadd r8, r4, r5, lsl #1\nadds r4, #0", 2 + 2),
        ("adds r3, #1\nsxtb16 r4, r5\nadds r5, #0", 2 + 2),
        ("ldrd r3, r4, [r2]\nadds r5, #0\nadds r3, #0", 2 + 2),
        ("cmp r1, r1\nit eq\naddeq r3, #1", 2 + 2),
    ],
)
def test_cortex_m7_issues_pairs(tmp_path: Path, body: str, cycles: int) -> None:
    assert cycles_per_round(tmp_path, f".balign 32\n1: {body}\n{_LOOP}", "stm32f746", RAM) == cycles


@pytest.mark.parametrize(
    ("body", "plain", "misses"),
    [
        # The F746's cache for code: 4 KB in two ways, so a third line at a distance of 2 KB evicts another.
        (_blocks(2, 2048), 1 + 2, 0),
        (_blocks(3, 2048), 2 + 2, 3),
        # For data, flash holds the last line.
        (".balign 32\n1: ldr r3, [r2]\nldr r3, [r2, #28]\n" + _LOOP, 1 + 2, 0),
        (".balign 32\n1: ldr r3, [r2]\nldr r3, [r2, #32]\n" + _LOOP, 2 + 2, 2),
    ],
)
def test_cache_miss_costs_its_wait_states(tmp_path: Path, body: str, plain: int, misses: int) -> None:
    assert cycles_per_round(tmp_path, body, "stm32f746") == plain + _M7_WAIT * misses


@pytest.mark.parametrize(
    ("core", "body", "cycles"),
    [
        # ARM DDI 0432, 3.3: 2 for a load or store, 1 plus 1 for each register, 3 for a branch, 4 for BL.
        ("cortex-m0", "", 1 + 3),
        ("cortex-m0", "ldr r3, [r2]\nldr r4, [r2]\nstr r3, [r2]\nmuls r3, r4", 3 * 2 + 1 + 4),
        ("cortex-m0", "push {r3, r4}\npop {r3, r4}", 2 * 3 + 4),
        ("cortex-m0", "bl 2f\nb 3f\n2: bx lr\n3:", 4 + 3 + 3 + 4),
        # ARM DDI 0484, 3.3: 2 for a branch, 3 for BL.
        ("cortex-m0plus", "bl 2f\nb 3f\n2: bx lr\n3:", 3 + 2 + 2 + 1 + 2),
        # ARM DDI 0337, 3.3: as the Cortex-M4, except multiply-accumulate.
        ("cortex-m3", "mul r3, r4, r5\nmla r3, r4, r5, r3\nldr r3, [r2]\nldr r4, [r2]", 1 + 2 + 2 + 1 + 3),
    ],
)
def test_core_cycles_equal_the_manual(tmp_path: Path, core: CoreName, body: str, cycles: int) -> None:
    assert (
        cycles_per_round(tmp_path, f".balign 32\n1: {body}\n{_LOOP.replace('.w', '')}", "stm32f407", RAM, core)
        == cycles
    )


@pytest.mark.parametrize(("unified", "misses"), [(False, 0), (True, 2)])
def test_unified_cache_holds_code_and_data(tmp_path: Path, unified: bool, misses: int) -> None:
    # One line of code and two of data, of which two ways hold the code and one.
    body = f"add.w r5, r2, #4096\nb.w 1f\n.ltorg\n.balign 16\n1: ldr r3, [r2]\nldr r4, [r5]\n{_LOOP}"
    cache = CacheSpec(lines=2, ways=2, line=16, wait=_M4_WAIT)
    timing = {"code": cache, "data": cache, "unified": unified}
    assert cycles_per_round(tmp_path, body, "stm32f407", timing=timing) == 2 + 1 + _M4_LOOP + misses * _M4_WAIT


def test_counter_shows_the_reason_of_waits_and_the_bytes(tmp_path: Path) -> None:
    loads = "".join(f"ldr r3, [r2, #{16 * line}]\nnop\n" for line in range(9))  # more lines than the cache
    counts = []
    for wait in range(FLASH_BYTES + 1):
        select = f"ldr r4, ={WAITS_REGISTER:#x}\nmovs r5, #{wait}\nstr r5, [r4]\nb 1f\n.ltorg\n"
        (tmp_path / str(wait)).mkdir()
        counts.append(cycles_per_round(tmp_path / str(wait), f"{select}.balign 16\n1: {loads}{_LOOP}", "stm32f407"))
    assert counts == [9 * (3 + _M4_WAIT) + _M4_LOOP, 9, 9 * _M4_WAIT, 1, 9 * 4]


@pytest.mark.parametrize(
    ("name", "ms", "data"),
    [
        ("stm32f746:cycles=model", 1000 / 216, (1, 7 + 4)),
        ("stm32f746:cache=on", 1000 / 216, (128, 7 + 4)),
        ("stm32f746:clock=180,cache=off", 1000 / 180, (1, 5 + 4)),  # RM0385, table 5: 5 wait states up to 180 MHz
        ("nucleo-l4r5zi:clock=80", 1000 / 80, (8, 3 + 1)),
        ("nucleo-l4r5zi:clock=16", 1000 / 16, (8, 0)),
        ("nucleo-l4r5zi:waits=2", 1000 / 120, (8, 2 + 1)),
        ("nucleo-l4r5zi:weights=ram", 1000 / 120, (8, 0)),
    ],
)
def test_chip_settings_change_the_timing(name: str, ms: float, data: tuple[int, int]) -> None:
    board = boards.load(name)
    assert board.timing
    assert board.milliseconds(1_000_000, "modelled cycles") == pytest.approx(ms)
    assert (board.timing.data.lines, board.timing.data.wait) == data
    assert board.timing.error is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("stm32f407:clock=200", "200 MHz is too fast"),
        ("stm32f407:clock=fast", "clock cannot be 'fast'"),
        ("stm32f407:cache=no", "cache cannot be 'no'"),
        ("nrf5340dk:clock=64", "wait states at other clocks are not known"),
        ("microbit:clock=16", "microbit has no model of cycles"),
    ],
)
def test_bad_chip_settings_are_named(name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        _ = boards.load(name).timing


def test_model_is_a_setting() -> None:
    assert boards.load("nucleo-l4r5zi").machine_spec().timing is None
    board = boards.load("nucleo-l4r5zi:cycles=model")
    assert board.full_name == "nucleo-l4r5zi:cycles=model"
    assert board.describe_time(8_880_000, "modelled cycles") == (
        "about 74 ms at 120 MHz, modelled, ±10 % (docs/time.md)"
    )
    assert board.describe_time(8_880_000, "instructions") == ""
    with pytest.raises(ConfigError, match="microbit has no model of cycles"):
        boards.load("microbit:cycles=model")
    with pytest.raises(ConfigError, match="cycles cannot be 'exact'"):
        boards.load("nucleo-l4r5zi:cycles=exact")


@pytest.mark.slow
def test_visits_of_a_debugger_change_no_cycle(tmp_path: Path) -> None:
    body = "tst r1, #5\nbne 2f\nadds r3, #1\n2: mla r4, r3, r3, r4\nldr r5, [r0]\nadd r4, r5"
    program = f"handler reset\n{CYCCNT_ON}\nldr r1, =150000\n1: {body}\nsubs r1, #1\nbne 1b\nldr r6, [r0, #4]\ndone"
    counts = []
    for pause in (0.3, 0.002):
        with Target(tmp_path, "stm32f746", cycles=True) as target:
            target.load(program)
            target.resume()
            time.sleep(pause)
            target.wait_for_halt()
            counts.append(target.register(6))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("watchpoint", [False, True])
def test_load_in_an_it_block_ends_its_condition(tmp_path: Path, watchpoint: bool) -> None:
    with Target(tmp_path, "stm32f407", cycles=not watchpoint) as target:
        target.load(
            "handler reset\nldr r2, =result\nmovs r4, #1\nmovs r5, #0\ncmp r4, #0\nit gt\nldrgt r3, [r2]\n"
            "cmp r4, #1\nb.w 1f\nnop\n1: movs r5, #7\ndone"
        )
        if watchpoint:
            for register, value in ((0x20, 0x20000F00), (0x24, 2), (0x28, 5)):
                target.poke(0xE0001000 + register, value)
        target.resume()
        target.wait_for_halt()
        assert target.register(5) == 7
