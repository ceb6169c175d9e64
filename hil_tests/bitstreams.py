# SPDX-License-Identifier: Apache-2.0
"""Bitstreams in the file format (magic; letter, length, value) without a valid configuration."""

DATA = b"\xff" * 32 + bytes.fromhex("000000bb11220044ffffffffffffffffaa99556620000000") + b"\0" * 64
"""Bus width and synchronisation words."""


def build_bitstream(part: bytes = b"7z020clg400", data: bytes = DATA, length: int | None = None) -> bytes:
    raw = bytes.fromhex("00090ff00ff00ff00ff0000001")
    fields = ((b"a", b"vta_wrapper;UserID=0XFFFFFFFF"), (b"b", part), (b"c", b"2020/03/12"), (b"d", b"15:10:29"))
    for letter, value in fields:
        raw += letter + (len(value) + 1).to_bytes(2, "big") + value + b"\0"
    return raw + b"e" + (len(data) if length is None else length).to_bytes(4, "big") + data
