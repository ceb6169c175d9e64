# SPDX-License-Identifier: Apache-2.0
"""Marks handles and addresses with their image, when a session has several images on its board.

Every image numbers its functions and its memory anew. So replies of later images carry a mark in bits that no
board uses, and a request with an earlier image's mark is refused.
"""

import struct
from collections.abc import Callable

from utvm.session.minrpc import Code, PacketValue, TypeIndex, code_of, handles_in, values_at

_SHIFT = 48  # No board has so much memory, and no process is given addresses beyond.
_LAST = (1 << (64 - _SHIFT)) - 1
# What every image has, and the same in each.
_SERVER = ("utvm.", "tvm.", "runtime.", "ffi.")


class StaleHandle(Exception):
    """A request for an object of an earlier image, named in the message."""


class ImageGenerations:
    """The images of one session, and their handles.

    Args:
        find: returns the current handle of one of the server's own functions.
    """

    def __init__(self, find: Callable[[str], int]) -> None:
        self._find = find
        self._modules = ["the first image"]
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

    def unmark(self, packet: bytes) -> bytes:
        """Remove the marks from a request."""
        try:
            places = handles_in(packet)
        except ValueError:
            return packet  # The board reports the error.
        request = bytearray(packet)
        for number, place in enumerate(places):
            (marked,) = struct.unpack_from("<Q", packet, place.at)
            mark, plain = divmod(marked, 1 << _SHIFT)
            if marked and mark < self._now:
                called = self._names.get(marked, "") if number == 0 and code_of(packet) == Code.CALL else ""
                if not called.startswith(_SERVER):
                    raise StaleHandle(self._stale_message(packet, place, marked, mark))
                plain = self._present(called)
            if mark <= self._now:
                struct.pack_into("<Q", request, place.at, plain)
        return bytes(request)

    def mark(self, packet: bytes, answer: bytes) -> bytes:
        """Add a mark to the handle in a reply."""
        if code_of(answer) != Code.RETURN:
            return answer
        try:
            results = values_at(answer, 4)[-1:]
            name = _first_text(packet, 12 if code_of(packet) == Code.CALL else 4)
        except ValueError:
            return answer
        if not results or results[0].kind != TypeIndex.HANDLE:
            return answer
        (plain,) = struct.unpack_from("<Q", answer, results[0].at)
        if not plain:
            return answer
        marked = plain | self._now << _SHIFT
        if name is not None:
            self._names[marked] = name
        reply = bytearray(answer)
        struct.pack_into("<Q", reply, results[0].at, marked)
        return bytes(reply)

    @property
    def _now(self) -> int:
        return len(self._modules) - 1

    def _present(self, name: str) -> int:
        if name not in self._server:
            self._server[name] = self._find(name)
        return self._server[name]

    def _stale_message(self, packet: bytes, place: PacketValue, marked: int, mark: int) -> str:
        since = f"{self._modules[-1]} was loaded since"
        if place.kind == TypeIndex.TENSOR or code_of(packet) in (Code.FREE, Code.COPY_AMONG):
            return f"a tensor of before is gone: {since} (make tensors after load_module)"
        name = self._names.get(marked, "")
        if place.kind != TypeIndex.FUNCTION or place.at != 4:
            name = (_first_text(packet, 12) if code_of(packet) == Code.CALL else None) or ""
        whose = f"{name} of {self._modules[mark]}" if name else self._modules[mark]
        return f"{whose} is gone: {since} (load it again)"


def _first_text(packet: bytes, offset: int) -> str | None:
    texts = (value for value in values_at(packet, offset) if value.is_text)
    return next((text.of(packet).decode("utf-8", "replace") for text in texts), None)
