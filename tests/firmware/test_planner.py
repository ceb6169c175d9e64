# SPDX-License-Identifier: Apache-2.0
"""Placing chunks in several separate memories: properties of every plan."""

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm.firmware.ram import Chunk, NoRoom, SectionSize, Stretch, plan

_SIZES = st.integers(1, 5000)
_ALIGNMENTS = st.sampled_from([1, 4, 8, 16, 512])


@st.composite
def _problems(draw: st.DrawFn) -> tuple[list[Stretch], Chunk, list[Chunk]]:
    """Disjoint stretches, a chunk at the start of one of them, and further chunks."""
    gaps_and_sizes = draw(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 20_000)), min_size=1, max_size=4))
    stretches, address = [], 0
    for number, (gap, size) in enumerate(gaps_and_sizes):
        stretches.append(Stretch(f"stretch{number}", address + gap, size, draw(st.booleans())))
        address += gap + size
    names = (f".section{number}" for number in itertools.count())
    section = st.builds(lambda size, alignment: SectionSize(next(names), size, alignment), _SIZES, _ALIGNMENTS)
    chunk = st.builds(
        lambda sections, executable: Chunk(tuple(sections), executable),
        st.lists(section, min_size=1, max_size=3),
        st.booleans(),
    )
    first = Chunk((SectionSize(".stack", draw(_SIZES), 8),))
    return stretches, first, draw(st.lists(chunk, max_size=8))


@pytest.mark.slow
@given(_problems(), st.randoms())
def test_sections_are_disjoint_and_allowed(problem: tuple[list[Stretch], Chunk, list[Chunk]], random: Random) -> None:
    stretches, first, chunks = problem
    try:
        addresses = plan(stretches, ("stretch0", first), chunks)
    except NoRoom as error:
        assert error.chunk in (first, *chunks)
        assert 0 <= error.room < error.need
        assert error.need >= sum(section.size for section in error.chunk.sections)
        assert error.stretch is not None or not any(stretch.executable for stretch in stretches)
        return
    used = []
    for chunk in (first, *chunks):
        end = 0
        for section in chunk.sections:
            address = addresses[section.name]
            assert address % section.alignment == 0
            assert address > 0
            assert address >= end
            end = address + section.size
            used.append((address, end))
        start = addresses[chunk.sections[0].name]
        (home,) = (stretch for stretch in stretches if stretch.address <= start < stretch.end)
        assert end <= home.end
        assert home.executable or not chunk.executable
    used.sort()
    assert all(lower[1] <= upper[0] for lower, upper in itertools.pairwise(used))
    assert addresses[".stack"] - max(stretches[0].address, 16) < 8
    random.shuffle(chunks)
    assert plan(stretches, ("stretch0", first), chunks) == addresses


@given(_problems())
def test_chunks_that_fit_together_always_fit(problem: tuple[list[Stretch], Chunk, list[Chunk]]) -> None:
    stretches, first, chunks = problem
    total = sum(s.size + s.alignment for chunk in (first, *chunks) for s in chunk.sections)
    large = Stretch("large", 0x1000_0000, total)
    plan([*stretches, large], ("large", first), chunks)


def test_smallest_sufficient_stretch_is_used() -> None:
    stretches = [Stretch("a", 0x1000, 300), Stretch("b", 0x2000, 100), Stretch("c", 0x3000, 200, executable=False)]
    chunks = [
        Chunk((SectionSize("code", 90, 4),), executable=True),
        Chunk((SectionSize("large", 180, 4),)),
        Chunk((SectionSize("small", 60, 4),)),
    ]
    addresses = plan(stretches, ("a", Chunk((SectionSize("stack", 40, 8),))), chunks)
    assert addresses == {"stack": 0x1000, "code": 0x2000, "large": 0x3000, "small": 0x1028}


def test_misplaced_or_oversized_code_is_refused() -> None:
    stack = Chunk((SectionSize("stack", 40, 8),))
    code = Chunk((SectionSize("vectors", 10, 4), SectionSize("code", 90, 4)), executable=True)
    with pytest.raises(NoRoom) as misplaced:
        plan([Stretch("a", 0x1000, 300, executable=False)], ("a", stack), [code])
    assert (misplaced.value.chunk.name, misplaced.value.stretch, misplaced.value.room) == ("code", None, 0)
    stretches = [Stretch("a", 0x1000, 130), Stretch("b", 0x2000, 80)]
    with pytest.raises(NoRoom) as oversized:
        plan(stretches, ("a", stack), [code])
    assert (oversized.value.need, oversized.value.stretch, oversized.value.room) == (102, stretches[0], 90)
