# SPDX-License-Identifier: Apache-2.0
"""Target descriptions and memory maps, with examples of the GDB manual."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm.probe.target_xml import (
    DescriptionError,
    FlashArea,
    NotFlashError,
    Register,
    erase_ranges,
    parse_flash,
    parse_registers,
)

K = 1024
F746 = (
    FlashArea(0x08000000, 128 * K, 32 * K),
    FlashArea(0x08020000, 128 * K, 128 * K),
    FlashArea(0x08040000, 768 * K, 256 * K),
)


def no_annex(name: str) -> str:
    raise AssertionError(f"{name} was asked for")


def test_registers_are_numbered_consecutively() -> None:
    document = """<?xml version="1.0"?><!DOCTYPE target SYSTEM "gdb-target.dtd"><target version="1.0">
      <feature name="org.gnu.gdb.arm.m-profile">
        <reg name="r0" bitsize="32"/><reg name="sp" bitsize="32" type="data_ptr"/>
        <reg name="xpsr" bitsize="32" regnum="25"/><reg name="primask" bitsize="1"/></feature></target>"""
    assert parse_registers(document, no_annex) == (
        Register("r0", 0, 32),
        Register("sp", 1, 32),
        Register("xpsr", 25, 32),
        Register("primask", 26, 1),
    )
    assert Register("primask", 26, 1).size == 1


def test_included_files_are_read() -> None:
    files = {"core.xml": '<feature name="c"><reg name="pc" bitsize="32"/></feature>'}
    document = (
        '<target xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="core.xml"/>'
        '<feature name="f"><reg name="d0" bitsize="64"/></feature></target>'
    )
    assert parse_registers(document, files.__getitem__) == (Register("pc", 0, 32), Register("d0", 1, 64))


@pytest.mark.parametrize("document", ["", "<target>", "<target><reg name='a'/></target>"])
def test_broken_descriptions_are_refused(document: str) -> None:
    with pytest.raises(DescriptionError):
        parse_registers(document, no_annex)


def test_flash_areas_of_a_memory_map() -> None:
    document = """<memory-map><memory type="ram" start="0x0" length="0x8000000"/>
      <memory type="flash" start="0x08000000" length="0x20000">
        <property name="blocksize">0x8000</property></memory>
      </memory-map>"""
    assert parse_flash(document) == (FlashArea(0x08000000, 0x20000, 0x8000),)


def test_flash_area_without_sector_size_is_refused() -> None:
    with pytest.raises(DescriptionError):
        parse_flash('<memory-map><memory type="flash" start="0" length="1"/></memory-map>')


def test_sectors_across_areas_of_different_sectors() -> None:
    assert erase_ranges(F746, [(0x08000000, 1)]) == [(0x08000000, 32 * K)]
    assert erase_ranges(F746, [(0x08007FFF, 2)]) == [(0x08000000, 64 * K)]
    assert erase_ranges(F746, [(0x0801FFFC, 8)]) == [(0x08018000, 160 * K)]
    assert erase_ranges(F746, [(0x08000000, 1024 * K)]) == [(0x08000000, 1024 * K)]


def test_no_sector_is_erased_twice() -> None:
    segments = [(0x08010000, 4), (0x08000000, 100), (0x08000200, 0x8000), (0x08010100, 4), (0x080C0000, 0)]
    assert erase_ranges(F746, segments) == [(0x08000000, 96 * K)]


@pytest.mark.parametrize(
    ("address", "size", "outside"),
    [(0x20000000, 4, 0x20000000), (0x08000000, 1024 * K + 1, 0x08100000), (0x07FFFFFF, 2, 0x07FFFFFF)],
)
def test_address_outside_flash_is_named(address: int, size: int, outside: int) -> None:
    with pytest.raises(NotFlashError, match=f"{outside:#010x} is not"):
        erase_ranges(F746, [(address, size)])


@given(st.integers(0, 1024 * K - 1), st.integers(1, 1024 * K))
def test_sectors_cover_the_range_exactly(offset: int, size: int) -> None:
    size = min(size, 1024 * K - offset)
    borders = [0, 32 * K, 64 * K, 96 * K, 128 * K, 256 * K, 512 * K, 768 * K, 1024 * K]
    ((start, length),) = erase_ranges(F746, [(0x08000000 + offset, size)])
    first = max(border for border in borders if border <= offset)
    last = min(border for border in borders if border >= offset + size)
    assert (start - 0x08000000, start + length - 0x08000000) == (first, last)
