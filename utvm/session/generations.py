# SPDX-License-Identifier: Apache-2.0
"""Whose a handle or an address is, where a board has one image after another in one client's session.

A board numbers its functions and its memory anew with every image. So what it gives away under a later one is
marked on the way out, in bits that no board uses, and what comes back with an earlier one's mark is refused.
"""

import struct
from collections.abc import Callable

from utvm.session.minrpc import Code, TypeIndex, code_of
from utvm.session.values import PacketValue, places_in, values_at

_SHIFT = 48  # No board has so much memory, and no process is given addresses beyond.
_LAST = (1 << (64 - _SHIFT)) - 1
# What every image has, and the same in each.
_SERVER = ("utvm.", "tvm.", "runtime.", "ffi.")


class Gone(Exception):
    """What a client asks for was there with an earlier image; the message says what it is."""


class Generations:
    """The images of one session, and what was given away under each.

    Args:
        find: returns the present handle of one of the server's own functions.
    """

    def __init__(self, find: Callable[[str], int]) -> None:
        self._find = find
        self._modules = ["what the board was served with"]
        self._names: dict[int, str] = {}
        self._server: dict[str, int] = {}

    @property
    def full(self) -> bool:
        """Whether there are no marks left."""
        return len(self._modules) > _LAST

    def begin(self, module: str) -> None:
        """Have the image of a module from now on."""
        self._modules.append(module)
        self._server.clear()

    def asked(self, packet: bytes) -> bytes:
        """Return what the board is asked for, without marks."""
        try:
            places = places_in(packet)
        except ValueError:
            return packet  # The board says what is wrong with it.
        wanted = bytearray(packet)
        for number, place in enumerate(places):
            (marked,) = struct.unpack_from("<Q", packet, place.at)
            mark, plain = divmod(marked, 1 << _SHIFT)
            if marked and mark < self._now:
                called = self._names.get(marked, "") if number == 0 and code_of(packet) == Code.CALL else ""
                if not called.startswith(_SERVER):
                    raise Gone(self._what_is_gone(packet, place, marked, mark))
                plain = self._present(called)
            if mark <= self._now:
                struct.pack_into("<Q", wanted, place.at, plain)
        return bytes(wanted)

    def told(self, packet: bytes, answer: bytes) -> bytes:
        """Return what the client is told: marks are on what the board has given away."""
        if code_of(answer) != Code.RETURN:
            return answer
        try:
            given = values_at(answer, 4)[-1:]
            texts = [each for each in values_at(packet, 12 if code_of(packet) == Code.CALL else 4) if each.is_text]
        except ValueError:
            return answer
        if not given or given[0].kind != TypeIndex.HANDLE:
            return answer
        (plain,) = struct.unpack_from("<Q", answer, given[0].at)
        if not plain:
            return answer
        marked = plain | self._now << _SHIFT
        if texts:
            self._names[marked] = texts[0].of(packet).decode("utf-8", "replace")
        told = bytearray(answer)
        struct.pack_into("<Q", told, given[0].at, marked)
        return bytes(told)

    @property
    def _now(self) -> int:
        return len(self._modules) - 1

    def _present(self, name: str) -> int:
        if name not in self._server:
            self._server[name] = self._find(name)
        return self._server[name]

    def _what_is_gone(self, packet: bytes, place: PacketValue, marked: int, mark: int) -> str:
        since = f"{self._modules[-1]} was loaded since"
        if place.kind == TypeIndex.TENSOR or code_of(packet) in (Code.FREE, Code.COPY_AMONG):
            return f"a tensor of before is gone: {since} (make tensors after load_module)"
        name = self._names.get(marked, "")
        if place.kind != TypeIndex.FUNCTION or place.at != 4:
            texts = (
                [each for each in values_at(packet, 12) if each.is_text] if code_of(packet) == Code.CALL else []
            )
            name = texts[0].of(packet).decode("utf-8", "replace") if texts else ""
        whose = f"{name} of {self._modules[mark]}" if name else self._modules[mark]
        return f"{whose} is gone: {since} (load it again)"
