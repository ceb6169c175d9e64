# SPDX-License-Identifier: Apache-2.0
"""Files that an RPC client uploads for a board, and the bitstream among them that programs its logic.

They stay on this computer. The functions are those of TVM's own server, and of VTA's: the board has none of them.
"""

import struct
from collections.abc import Callable
from pathlib import Path

from utvm.errors import ConfigError, UtvmError
from utvm.session.minrpc import Code, TypeIndex, code_of, exception_packet
from utvm.session.worker import BoardLink

UPLOAD_BYTES = 1 << 24
"""The longest packet that a client may send where it can upload files."""

_UPLOAD, _REMOVE, _PROGRAM = "tvm.rpc.server.upload", "tvm.rpc.server.remove", "tvm.contrib.vta.init"
_NAMES = (_UPLOAD, _REMOVE, _PROGRAM)
_FIRST = 0x4000_0000  # Handles of ours: the board's are below.
_FUNCTION = 4
_TEXTS = (TypeIndex.RAW_STRING, TypeIndex.RAW_BYTES, 11, 12, 65, 66)  # short ones and objects of tvm-ffi, too
_OBJECTS = (65, 66)


class FilesLink:
    """A board's link that takes files.

    Args:
        inner: the board's own.
        program: programs its logic with a file.
        folder: where uploaded files are.
        limit: bytes of the longest packet that the board takes.
    """

    def __init__(self, inner: BoardLink, program: Callable[[Path], object], folder: Path, limit: int) -> None:
        self._inner = inner
        self._program = program
        self._folder = folder
        self._limit = limit

    def terminate(self) -> None:
        """End the session."""
        self._inner.terminate()

    def abort(self) -> None:
        """End a request that is under way in another thread."""
        self._inner.abort()

    def request(self, packet: bytes, timeout: float) -> bytes:
        """Answer what is about files, and have the board answer the rest; raises as its link."""
        code = code_of(packet)
        if code == Code.GET_FUNCTION and (name := _first_text(packet)) in _NAMES:
            return struct.pack("<iiiQ", Code.RETURN, 1, _FUNCTION, _FIRST + _NAMES.index(name))
        if code == Code.CALL and (number := _handle(packet, 4)) in range(len(_NAMES)):
            return self._called(_NAMES[number], packet)
        if code == Code.FREE_HANDLE and _handle(packet, 12) in range(len(_NAMES)):
            return struct.pack("<iii", Code.RETURN, 1, TypeIndex.NONE)
        if len(packet) > self._limit:
            return exception_packet(
                f"a packet of {len(packet)} bytes is too long: the board takes {self._limit} bytes"
            )
        return self._inner.request(packet, timeout)

    def _called(self, name: str, packet: bytes) -> bytes:
        try:
            file, *data = _texts(packet, 12)
            place = self._folder / _file_name(file)
            if name == _UPLOAD:
                place.write_bytes(data[0])
            elif name == _REMOVE:
                place.unlink(missing_ok=True)
            elif not place.is_file():
                raise ConfigError(f"{place.name} was not uploaded", "vta.program_fpga(remote, FILE) does both")
            else:
                self._program(place)
        except UtvmError as error:
            return exception_packet(f"{error.message}{f' ({error.hint})' if error.hint else ''}")
        except (ValueError, IndexError, struct.error):
            return exception_packet(f"{name} takes a file's name" + (", and bytes" if name == _UPLOAD else ""))
        return struct.pack("<iiiqi", Code.RETURN, 2, TypeIndex.INTEGER, TypeIndex.NONE, TypeIndex.NONE)


def _file_name(raw: bytes) -> str:
    name = raw.decode()
    if not name or name != Path(name).name:
        raise ConfigError(f"{name!r} is no name of a file", "a name without folders")
    return name


def _handle(packet: bytes, at: int) -> int:
    """Return which of our functions a handle is; some other number where it is the board's."""
    return struct.unpack_from("<Q", packet, at)[0] - _FIRST if len(packet) >= at + 8 else -1


def _first_text(packet: bytes) -> str:
    try:
        return _texts(packet, 4)[0].decode("utf-8", "replace")
    except (ValueError, IndexError, struct.error):
        return ""


def _texts(packet: bytes, at: int) -> list[bytes]:
    """Return the arguments of a packet, which are texts or bytes.

    Raises:
        ValueError: another one is among them.
        struct.error: the packet ends before them.
    """
    (count,) = struct.unpack_from("<i", packet, at)
    at += 4
    found = []
    for _ in range(count):
        (kind,) = struct.unpack_from("<i", packet, at)
        if kind not in _TEXTS:
            raise ValueError(kind)
        at += 8 if kind in _OBJECTS else 4  # an object's type comes twice
        (size,) = struct.unpack_from("<Q", packet, at)
        found.append(packet[at + 8 : at + 8 + size])
        at += 8 + size
    return found
