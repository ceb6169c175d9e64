# SPDX-License-Identifier: Apache-2.0
"""Memory of RPC tensors: blocks never overlap, and every query about an address has a correct reply."""

import ctypes
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

_BYTES = 4096
_HEAD = 16


@pytest.fixture(scope="module")
def memory(load_library: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    library = load_library(["memory.c"])
    library.utvm_memory_take.restype = ctypes.c_void_p
    for name in ("utvm_memory_give", "utvm_memory_room"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.utvm_memory_init.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    library.utvm_memory_give.restype = ctypes.c_bool
    return library


@pytest.mark.slow
def test_blocks_equal_a_reference_model(memory: ctypes.CDLL) -> None:
    class Model(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.buffer = (ctypes.c_uint8 * (_BYTES + 16))()
            self.start = ctypes.addressof(self.buffer)
            memory.utvm_memory_init(self.start, _BYTES)
            self.blocks: dict[int, int] = {}

        @rule(size=st.integers(0, 700))
        def take(self, size: int) -> None:
            largest = memory.utvm_memory_largest()
            address = memory.utvm_memory_take(size)
            if size or largest:  # Largest is 0 for a full memory, and for one with space for a header only.
                assert (address is not None) == (size <= largest)
            if address is not None:
                assert address % 16 == 0
                assert self.start <= address and address + size <= self.start + _BYTES
                ctypes.memset(address, 0xFF, size)
                self.blocks[address] = size

        @rule(index=st.integers(0, 100))
        def give(self, index: int) -> None:
            if self.blocks:
                address = sorted(self.blocks)[index % len(self.blocks)]
                del self.blocks[address]
                assert memory.utvm_memory_give(address)
                assert not memory.utvm_memory_give(address)

        @rule(offset=st.integers(-50, _BYTES + 50))
        def query(self, offset: int) -> None:
            address = self.start + offset
            space = memory.utvm_memory_room(address)
            inside = [(start, size) for start, size in self.blocks.items() if start <= address < start + size]
            if inside:
                assert space >= inside[0][0] + inside[0][1] - address
            elif space:
                # Blocks end at multiples of 16.
                assert any(start <= address < start + -(-size // 16) * 16 for start, size in self.blocks.items())
            if address not in self.blocks:
                assert not memory.utvm_memory_give(address)

        @invariant()
        def nothing_overlaps(self) -> None:
            end = 0
            for address in sorted(self.blocks):
                assert address >= end
                end = address + self.blocks[address]
            assert memory.utvm_memory_used() <= memory.utvm_memory_used_at_most() <= _BYTES

        def teardown(self) -> None:
            for address in list(self.blocks):
                assert memory.utvm_memory_give(address)
            assert memory.utvm_memory_used() == 0
            # All free blocks are merged.
            assert memory.utvm_memory_largest() >= _BYTES - 2 * _HEAD

    Model.TestCase.settings = settings(max_examples=60, deadline=None)
    Model.TestCase().runTest()


@pytest.mark.parametrize("size", [_BYTES, 2**31, 2**32 - 1, 2**32 - 8])
def test_too_large_request_is_refused(memory: ctypes.CDLL, size: int) -> None:
    buffer = (ctypes.c_uint8 * _BYTES)()
    memory.utvm_memory_init(ctypes.addressof(buffer), _BYTES)
    assert memory.utvm_memory_take(size) is None
    assert memory.utvm_memory_used() == 0
