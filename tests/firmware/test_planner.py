"""Placing blocks in memory that is in several pieces: what must hold whatever they are."""

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm.firmware.planner import Block, NoRoom, Place, Section, plan

_SIZES = st.integers(1, 5000)
_ALIGNMENTS = st.sampled_from([1, 4, 8, 16, 512])


@st.composite
def _problems(draw: st.DrawFn) -> tuple[list[Place], Block, list[Block]]:
    """Some places that do not overlap, what lies first in one of them, and some blocks."""
    gaps_and_sizes = draw(
        st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 20_000)), min_size=1, max_size=4)
    )
    places, address = [], 0
    for number, (gap, size) in enumerate(gaps_and_sizes):
        places.append(Place(f"place{number}", address + gap, size, draw(st.booleans())))
        address += gap + size
    names = (f".section{number}" for number in itertools.count())
    section = st.builds(lambda size, alignment: Section(next(names), size, alignment), _SIZES, _ALIGNMENTS)
    block = st.builds(
        lambda sections, executable: Block(tuple(sections), executable),
        st.lists(section, min_size=1, max_size=3),
        st.booleans(),
    )
    first = Block((Section(".stack", draw(_SIZES), 8),))
    return places, first, draw(st.lists(block, max_size=8))


@given(_problems(), st.randoms())
def test_every_section_has_a_place_of_its_own_where_it_may_be(
    problem: tuple[list[Place], Block, list[Block]], random: Random
) -> None:
    places, first, blocks = problem
    try:
        addresses = plan(places, ("place0", first), blocks)
    except NoRoom as error:
        assert error.block in (first, *blocks)
        assert 0 <= error.room < error.need
        assert error.need >= sum(section.size for section in error.block.sections)
        assert error.place is not None or not any(place.executable for place in places)
        return
    taken = []
    for block in (first, *blocks):
        end = 0
        for section in block.sections:
            address = addresses[section.name]
            assert address % section.alignment == 0
            assert address > 0
            assert address >= end
            end = address + section.size
            taken.append((address, end))
        start = addresses[block.sections[0].name]
        (home,) = (place for place in places if place.address <= start < place.end)
        assert end <= home.end
        assert home.executable or not block.executable
    taken.sort()
    assert all(lower[1] <= upper[0] for lower, upper in itertools.pairwise(taken))
    assert addresses[".stack"] - max(places[0].address, 16) < 8
    random.shuffle(blocks)
    assert plan(places, ("place0", first), blocks) == addresses


@given(_problems())
def test_what_would_fit_into_one_place_always_fits(problem: tuple[list[Place], Block, list[Block]]) -> None:
    places, first, blocks = problem
    whole = sum(s.size + s.alignment for block in (first, *blocks) for s in block.sections)
    large = Place("large", 0x1000_0000, whole)
    plan([*places, large], ("large", first), blocks)


def test_the_smallest_room_that_suffices_is_taken() -> None:
    places = [Place("a", 0x1000, 300), Place("b", 0x2000, 100), Place("c", 0x3000, 200, executable=False)]
    blocks = [
        Block((Section("code", 90, 4),), executable=True),
        Block((Section("large", 180, 4),)),
        Block((Section("small", 60, 4),)),
    ]
    addresses = plan(places, ("a", Block((Section("stack", 40, 8),))), blocks)
    assert addresses == {"stack": 0x1000, "code": 0x2000, "large": 0x3000, "small": 0x1028}


def test_code_where_none_can_run_and_what_is_too_large_are_refused_with_the_room() -> None:
    stack = Block((Section("stack", 40, 8),))
    code = Block((Section("vectors", 10, 4), Section("code", 90, 4)), executable=True)
    with pytest.raises(NoRoom) as nowhere:
        plan([Place("a", 0x1000, 300, executable=False)], ("a", stack), [code])
    assert (nowhere.value.block.name, nowhere.value.place, nowhere.value.room) == ("code", None, 0)
    places = [Place("a", 0x1000, 130), Place("b", 0x2000, 80)]
    with pytest.raises(NoRoom) as narrow:
        plan(places, ("a", stack), [code])
    assert (narrow.value.need, narrow.value.place, narrow.value.room) == (102, places[0], 90)
