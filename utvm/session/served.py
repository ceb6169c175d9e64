# SPDX-License-Identifier: Apache-2.0
"""Serves a board to RPC clients, with the modules and bitstreams that they upload.

The functions for this are those of TVM's own server, and of VTA's; they run here, not on the board. A module is
linked into an image on this computer, and the client's session continues with that image on the board.
"""

import contextlib
import math
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from utvm.base.process import landlock
from utvm.base.storage import cache, files
from utvm.boards import Board
from utvm.boards.accelerators import accelerator_of
from utvm.compiler.library import MAX_TENSOR_BYTES
from utvm.drivers import Connection
from utvm.errors import ConfigError, DoesNotFitError, UtvmError
from utvm.firmware import Firmware, build
from utvm.firmware.build import READY
from utvm.firmware.module import Module, Upload, read_module
from utvm.paths import DATA, PACKAGE
from utvm.runtime import RPC_PACKET_BYTES
from utvm.session.link import Link
from utvm.session.minrpc import Code, PacketValue, TypeIndex, code_of, exception_packet, handles_in, values_at
from utvm.session.rpc import RpcBoard, start_rpc

_SHIFT = 48  # No board has that much memory, and no process gets higher addresses.
_LAST = (1 << (64 - _SHIFT)) - 1
# Functions that exist in every image.
_SERVER = ("utvm.", "tvm.", "runtime.", "ffi.")


class StaleHandle(Exception):
    """A request for an object of an earlier image, named in the message."""


class ImageGenerations:
    """Marks the handles of a session with the number of the image they belong to; ``find`` looks a function up."""

    def __init__(self, find: Callable[[str], int]) -> None:
        self._find = find
        self._modules = ["the first image"]
        self._names: dict[int, str] = {}
        self._server: dict[str, int] = {}

    @property
    def full(self) -> bool:
        """True if no further image can be numbered."""
        return len(self._modules) > _LAST

    def begin(self, module: str) -> None:
        """Start the next image, that of a module."""
        self._modules.append(module)
        self._server.clear()

    def unmark(self, packet: bytes) -> bytes:
        """Remove the marks from a request."""
        try:
            values_found = handles_in(packet)
        except ValueError:
            return packet  # The board reports the error.
        request = bytearray(packet)
        for number, place in enumerate(values_found):
            (marked,) = struct.unpack_from("<Q", packet, place.at)
            mark, plain = divmod(marked, 1 << _SHIFT)
            if marked and mark < self._current:
                called = self._names.get(marked, "") if number == 0 and code_of(packet) == Code.CALL else ""
                if not called.startswith(_SERVER):
                    raise StaleHandle(self._stale_message(packet, place, marked, mark))
                plain = self._current_handle(called)
            if mark <= self._current:
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
        marked = plain | self._current << _SHIFT
        if name is not None:
            self._names[marked] = name
        reply = bytearray(answer)
        struct.pack_into("<Q", reply, results[0].at, marked)
        return bytes(reply)

    @property
    def _current(self) -> int:
        return len(self._modules) - 1

    def _current_handle(self, name: str) -> int:
        if name not in self._server:
            self._server[name] = self._find(name)
        return self._server[name]

    def _stale_message(self, packet: bytes, place: PacketValue, marked: int, mark: int) -> str:
        since = f"{self._modules[-1]} was loaded since"
        if place.kind == TypeIndex.TENSOR or code_of(packet) in (Code.FREE, Code.COPY_AMONG):
            return f"an earlier tensor is gone: {since} (create tensors after load_module)"
        name = self._names.get(marked, "")
        if place.kind != TypeIndex.FUNCTION or place.at != 4:
            name = (_first_text(packet, 12) if code_of(packet) == Code.CALL else None) or ""
        owner = f"{name} of {self._modules[mark]}" if name else self._modules[mark]
        return f"{owner} is gone: {since} (load it again)"


def _first_text(packet: bytes, offset: int) -> str | None:
    texts = (value for value in values_at(packet, offset) if value.is_text)
    return next((text.of(packet).decode("utf-8", "replace") for text in texts), None)


UPLOAD_BYTES = 1 << 24
"""Longest packet of a client: a file and its header."""

_MAX_BYTES = 1 << 26
_MAX_FILES = 64
_MAX_NAME_BYTES = 128


class UploadedFiles:
    """Uploaded files of one session, by name without folders."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._sizes: dict[str, int] = {}
        self._folder: Path | None = None

    @property
    def folder(self) -> Path:
        """The session's folder, created on first use."""
        if self._folder is None:
            self._folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="utvm-session-")))
        return self._folder

    def put(self, name: str, data: bytes) -> None:
        """Store a file, replacing one of the same name."""
        others = {other: size for other, size in self._sizes.items() if other != name}
        if len(others) >= _MAX_FILES or sum(others.values()) + len(data) > _MAX_BYTES:
            raise ConfigError(
                f"{name} is too much: a session has at most {_MAX_FILES} files of {_MAX_BYTES} bytes together",
                "remove files that are no longer needed",
            )
        with ConfigError.on_os_error(f"{name} cannot be stored"):
            self._path_of(name).write_bytes(data)
        self._sizes = {**others, name: len(data)}

    def remove(self, name: str) -> None:
        """Remove a file, or all if the name is empty. Missing files are ignored."""
        for file in (name,) if name else tuple(self._sizes):
            with contextlib.suppress(OSError):
                self._path_of(file).unlink()
            self._sizes.pop(file, None)

    def find(self, name: str, hint: str) -> Path:
        """Return the path of an uploaded file."""
        place = self._path_of(name)
        if name not in self._sizes:
            raise ConfigError(f"{name} was not uploaded", hint)
        return place

    def close(self) -> None:
        """Remove all files. Safe to call again."""
        self._sizes.clear()
        self._folder = None
        self._open.close()

    def _path_of(self, name: str) -> Path:
        is_name = name not in ("", ".", "..") and "/" not in name and name.isprintable()
        if not is_name or len(name.encode()) > _MAX_NAME_BYTES:
            raise ConfigError(f"{name[:_MAX_NAME_BYTES]!r} is not a file name", "a short name without folders")
        uploaded = self.folder / "uploaded"
        uploaded.mkdir(exist_ok=True)
        return uploaded / name


_UPLOAD, _REMOVE, _LOAD = (f"tvm.rpc.server.{name}" for name in ("upload", "remove", "load_module"))
_FILL, _PROGRAM = "tvm.contrib.random.random_fill_for_measure", "tvm.contrib.vta.init"
_NAMES = (_UPLOAD, _REMOVE, _LOAD, _FILL, _PROGRAM)
_FIRST = 0x4000_0000  # First handle of the functions here: the board's are below.
_TAKES = {**dict.fromkeys(_NAMES, "a file's name"), _UPLOAD: "a file's name, and bytes", _FILL: "a tensor"}
_DONE = struct.pack("<iiiqi", Code.RETURN, 2, TypeIndex.INTEGER, TypeIndex.NONE, TypeIndex.NONE)
_FREED = struct.pack("<iii", Code.RETURN, 1, TypeIndex.NONE)
_PIECE = 1024  # Bytes of a tensor per packet.


class ModuleBoard:
    """A board and its current image. Entering flashes the first one.

    Args:
        base: image at the start of each session.
        say: called with the board's log messages and a message for each module.
        modules: True to accept uploaded modules.
    """

    def __init__(
        self, connection: Connection, base: Firmware, say: Callable[[str], None], modules: bool = True
    ) -> None:
        self._connection = connection
        self._base = base
        self._say = say
        self._modules = modules
        self._stack = contextlib.ExitStack()
        self._image: Firmware | None = None
        self.board: RpcBoard

    def __enter__(self) -> "ModuleBoard":
        self._program(self._base)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def program_logic(self) -> Callable[[Path], object] | None:
        """As in :class:`RpcBoard`."""
        return self.board.program_logic

    def connect(self) -> "ServedLink":
        """Start a client's session with the first image."""
        if self._image is not self._base:
            self._program(self._base)
        return ServedLink(self, self.board.connect())

    def restart(self) -> "ServedLink":
        if self._image is not self._base:
            return self.connect()
        return ServedLink(self, self.board.restart())

    def link(self, name: str, file: Path, folder: Path) -> Firmware:
        """Link an uploaded module into an image: in RAM if code can run there and it fits, else in flash."""
        if not self._modules:
            raise ConfigError(
                f"{name}: a module for {self._base.board.name} runs on this computer, and anybody may connect",
                "leave out --anyone: from the server's own user, modules are accepted",
            )
        data, base = file.read_bytes(), self._base
        objects = cache.Cache(READY).directory
        objects.mkdir(parents=True, exist_ok=True)
        accelerator_files = accelerator_of(base.board).reads if base.board.accelerator else ()
        places = (PACKAGE, DATA / "toolchains", DATA / "docs", base.board.directory, base.elf, objects, folder)
        readable = (*places, *accelerator_files)
        confined = landlock.can_confine()

        def build_module() -> Firmware:
            return self._build_module(read_module(name, data, base.elf), folder, confined)

        return landlock.run_in_landlock(build_module, readable) if confined else build_module()

    def put(self, name: str, firmware: Firmware) -> Link:
        before = self._image
        self._program(firmware)
        if before is not self._base and before is not None:
            files.remove_tree(before.elf.parent)
        self._say(f"{name} is on the board{', in RAM' if firmware.in_ram else ''}")
        return self.board.connect()

    def _build_module(self, module: Module, folder: Path, confined: bool) -> Firmware:
        if not confined and (module.sources or module.libraries):
            raise ConfigError(
                f"{module.name} is C, and its compiler cannot be denied this computer's files (Landlock)",
                "upload an object, or serve from Linux 5.13 or later",
            )
        base = self._base

        def image(in_ram: bool) -> Firmware:
            place = Path(tempfile.mkdtemp(dir=folder))
            try:
                return build(
                    base.board,
                    module.libraries,
                    "rpc",
                    pipe=base.pipe or "",
                    in_ram=in_ram,
                    able=self._connection.capabilities,
                    module=Upload(module, place),
                )
            except UtvmError:
                files.remove_tree(place)
                raise

        if _runs_code_in_ram(base.board, self._connection):
            # A module too large for RAM may fit into flash.
            with contextlib.suppress(DoesNotFitError):
                return image(True)
        return image(False)

    def _program(self, firmware: Firmware) -> None:
        self._image = None
        self._stack.close()
        self.board = self._stack.enter_context(start_rpc(self._connection, firmware, self._say))
        self._image = firmware


def _runs_code_in_ram(board: Board, connection: Connection) -> bool:
    if not connection.has_debug_port or board.region(board.layout.code).kind == "ram":
        return False
    return any(region.kind == "ram" and region.executable for region in board.memory)


class ServedLink:
    """A client's link to the board, with the functions that run on this computer; ``inner`` is the board's link."""

    def __init__(self, served: ModuleBoard, inner: Link) -> None:
        self._served = served
        self._inner = inner
        self._files = UploadedFiles()
        self._opening = b""
        self._timeout = 0.0
        self._generations = ImageGenerations(self._find)

    def terminate(self) -> None:
        """End the session and remove its uploads."""
        try:
            self._inner.terminate()
        finally:
            self._files.close()

    def abort(self) -> None:
        """Cancel a request running in another thread."""
        self._inner.abort()

    def request(self, packet: bytes, timeout: float) -> bytes:
        """Handle a packet here or forward it to the board; raises as its link."""
        self._timeout = timeout
        code = code_of(packet)
        if code == Code.INIT_SERVER:
            self._opening = packet
        own = self._own(code, packet)
        if own and code == Code.GET_FUNCTION:
            return struct.pack("<iiiQ", Code.RETURN, 1, TypeIndex.HANDLE, _FIRST + _NAMES.index(own))
        if own and code == Code.CALL:
            return self._call(own, packet)
        if own:
            return _FREED
        try:
            request = self._generations.unmark(packet)
        except StaleHandle as gone:
            # It is already freed.
            return _FREED if code in (Code.FREE, Code.FREE_HANDLE) else exception_packet(str(gone))
        if len(packet) > RPC_PACKET_BYTES:
            return exception_packet(
                f"a packet of {len(packet)} bytes is too long: the board takes {RPC_PACKET_BYTES} bytes"
            )
        return self._generations.mark(packet, self._inner.request(request, timeout))

    def _own(self, code: int, packet: bytes) -> str:
        try:
            if code == Code.GET_FUNCTION:
                name = values_at(packet, 4)[0].of(packet).decode("utf-8", "replace")
                is_known = name in _NAMES and (name != _PROGRAM or self._served.program_logic is not None)
                return name if is_known else ""
            if code == Code.CALL:
                (handle,) = struct.unpack_from("<Q", packet, 4)
            elif code == Code.FREE_HANDLE:
                (handle,) = struct.unpack("<Q", values_at(packet, 4)[0].of(packet))
            else:
                return ""
        except (ValueError, IndexError, struct.error):
            return ""
        return _NAMES[handle - _FIRST] if handle - _FIRST in range(len(_NAMES)) else ""

    def _call(self, name: str, packet: bytes) -> bytes:
        try:
            values = values_at(packet, 12)
            if name == _FILL:
                return self._fill(packet, values)
            file = values[0].of(packet).decode() if values[0].is_text else ""
            if name == _UPLOAD:
                self._files.put(file, values[1].of(packet))
            elif name == _REMOVE:
                self._files.remove(file)
            elif name == _LOAD:
                place = self._files.find(file, "remote.upload comes before remote.load_module")
                image = self._served.link(file, place, self._files.folder)
            else:
                if not file:
                    raise ConfigError("no bitstream is named, and there is none here", "program_fpga(remote, FILE)")
                program = self._served.program_logic
                assert program
                program(self._files.find(file, "vta.program_fpga(remote, FILE) does both"))
        except UtvmError as error:
            return exception_packet(f"{error.message}{f' ({error.hint})' if error.hint else ''}")
        except (ValueError, IndexError):
            return exception_packet(f"{name} takes {_TAKES[name]}")
        return self._load_image(file, image) if name == _LOAD else _DONE

    def _load_image(self, file: str, image: Firmware) -> bytes:
        if self._generations.full:
            return exception_packet("the session has reached its maximum number of modules: connect again")
        self._inner.terminate()
        self._generations.begin(file)
        self._inner = self._served.put(file, image)
        self._inner.request(self._opening, self._timeout)
        ask = struct.pack("<iQi", Code.CALL, self._find("ffi.SystemLib"), 0)
        return self._generations.mark(ask, self._inner.request(ask, self._timeout))

    def _find(self, name: str) -> int:
        ask = struct.pack("<iiiQ", Code.GET_FUNCTION, 1, TypeIndex.RAW_STRING, len(name)) + name.encode()
        answer = self._inner.request(ask, self._timeout)
        (handle,) = struct.unpack_from("<Q", answer, 12)
        return int(handle)

    def _fill(self, packet: bytes, values: list[PacketValue]) -> bytes:
        (tensor,) = values
        if tensor.kind != TypeIndex.TENSOR:
            raise ValueError("expected a tensor")
        description = tensor.of(packet)
        dimensions, kind, bits, lanes = struct.unpack_from("<iBBH", description, 16)
        shape = struct.unpack_from(f"<{dimensions}Q", description, 24)
        (offset,) = struct.unpack_from("<Q", description, len(description) - 8)
        data = _random(kind, bits, math.prod(shape) * lanes)
        for at in range(0, len(data), _PIECE):
            piece = data[at : at + _PIECE]
            head = description[:-8] + struct.pack("<Q", offset + at)
            copy = struct.pack("<i", Code.COPY_TO) + head + struct.pack("<Q", len(piece)) + piece
            answer = self.request(copy, self._timeout)
            if code_of(answer) == Code.EXCEPTION:
                return answer
        return _DONE


def _random(kind: int, bits: int, count: int) -> bytes:
    """Return random numbers of a DLPack type: any integers, or floats from 1 to 10 as in TVM's server."""
    if count * bits > 8 * MAX_TENSOR_BYTES:
        raise ConfigError(f"{count} numbers of {bits} bits are more than {MAX_TENSOR_BYTES} bytes")
    generator = np.random.default_rng(0)
    if kind in (0, 1) and bits % 8 == 0:
        return generator.bytes(count * bits // 8)
    if kind == 2 and bits in (16, 32, 64):
        return generator.uniform(1.0, 10.0, count).astype(f"<f{bits // 8}").tobytes()
    if kind == 6 and bits == 8:
        return generator.integers(0, 2, count, np.uint8).tobytes()
    raise ConfigError(f"there are no random numbers of DLPack's type {kind} with {bits} bits", "fill it by hand")
