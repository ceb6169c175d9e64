# SPDX-License-Identifier: Apache-2.0
"""Read a model file by content, not name; Python and PyTorch archives may run code: with consent only.

Files may hold a model inside (gzip, archives, C arrays); files that are not models get hints.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from utvm.base.storage.config import read_yaml
from utvm.base.storage.files import check_readable
from utvm.compiler import bounded, library, names, refusal
from utvm.compiler.read import exported_file, tflite_graph
from utvm.errors import ConfigError, UtvmError, did_you_mean

_MAX_BYTES = 1 << 28
_MAX_TEXT = 1 << 26  # Of C source: more than any board holds.
_MOST_LAYERS = 3  # An array in an archive in gzip.

_SAVED_MODEL = "is a TensorFlow SavedModel", "convert it with tf.lite.TFLiteConverter.from_saved_model(FOLDER)"
_NO_MODELS = read_yaml(Path(__file__).with_suffix(".yaml"))[0]
_MODELS = re.compile(r"\.(tflite|lite|onnx)$|(^|/)tflite-model/[^/]+\.(h|hpp|c|cc|cpp)$")
_VALUES = re.compile(rb"=\s*\{([^{}]*)\}")
_BYTES = re.compile(rb"\b(?:char|u?int8_t)\b[^={};]*\Z")  # The declaration before the values.
_DECLARATION = 300  # Bytes of it that are read.
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_SOURCES = (".c", ".cc", ".cpp", ".h", ".hpp", ".inc")


def unpack(path: Path, content: bytes) -> bytes:
    """Return the model that a file holds; refuse what is known to be something else."""
    for _ in range(_MOST_LAYERS):
        if content[4:8] == tflite_graph.IDENTIFIER:
            return content
        inner = _inner(str(path), path.suffix.lower(), content)
        if inner is None:
            break
        content = inner
    if path.name == "saved_model.pb":
        raise _refusal(str(path), *_SAVED_MODEL)
    _refuse(str(path), content[:8192].decode("latin-1"), _NO_MODELS["files"], re.match)
    return content


def refuse_folder(path: Path) -> None:
    if (path / "saved_model.pb").is_file():
        raise _refusal(str(path), *_SAVED_MODEL)


def _refusal(origin: str, kind: str, hint: str) -> ConfigError:
    return ConfigError(f"{origin}: {kind}", hint)


def _refuse(
    origin: str, text: str, table: list[tuple[str, str, str]], search: Callable[[str, str, re.RegexFlag], object]
) -> None:
    for pattern, kind, hint in table:
        if search(pattern, text, re.MULTILINE):
            raise _refusal(origin, kind, hint)


def _inner(origin: str, suffix: str, content: bytes) -> bytes | None:
    if content.startswith(b"\x1f\x8b"):
        return _uncompress(origin, content)
    if content.startswith(exported_file.ARCHIVE):
        return _from_archive(origin, content)
    if b"\0" in content or len(content) > _MAX_TEXT:
        return None
    arrays = [array for array in _arrays(content) if array[4:8] == tflite_graph.IDENTIFIER]
    if len(arrays) > 1:
        raise ConfigError(f"{origin}: holds {len(arrays)} models", "leave one in the file")
    if suffix in _SOURCES and not arrays:
        raise ConfigError(f"{origin}: is C source without the array of a TFLite model", "give the .tflite file")
    return arrays[0] if arrays else None


def _uncompress(origin: str, content: bytes) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    with ConfigError.on(zlib.error, f"{origin}: is damaged gzip", "download it again"):
        inner = stream.decompress(content, _MAX_BYTES)
    if not stream.eof:
        problem = "is too large for any board" if len(inner) == _MAX_BYTES else "is only a part of a gzip file"
        raise ConfigError(f"{origin}: {problem}", "download it again")
    if inner[257:262] == b"ustar":
        raise ConfigError(f"{origin}: is a tar archive", "unpack it, and name the model in it")
    return inner


def _from_archive(origin: str, content: bytes) -> bytes | None:
    """Return the only model of an archive; None for one of ``torch.export``."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            if any(name.endswith(exported_file.MARKS) for name in names):
                return None
            chosen = [member for member in members if _MODELS.search(member.filename)]
            models = {member.filename: _model(origin, archive, member) for member in chosen}
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError, zlib.error):
        return None  # exported_file reports the problem.
    inner = {name: model for name, model in models.items() if model}
    if len(inner) > 1:
        raise ConfigError(f"{origin}: holds {len(inner)} models: {', '.join(inner)}", "unpack it, and name one")
    if not inner:
        _refuse(origin, "\n".join(names), _NO_MODELS["members"], re.search)
    return next(iter(inner.values()), None)


def _model(origin: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes | None:
    if member.file_size > _MAX_BYTES:
        raise ConfigError(f"{origin}: holds {member.filename}, which is too large for any board")
    with archive.open(member) as stream:
        content = stream.read(_MAX_BYTES)
    if not member.filename.endswith(_SOURCES):
        return content
    return next((array for array in _arrays(content) if array[4:8] == tflite_graph.IDENTIFIER), None)


def _arrays(source: bytes) -> Iterator[bytes]:
    text = _COMMENT.sub(b"", source)
    for values in _VALUES.finditer(text):
        if not _BYTES.search(text[max(0, values.start() - _DECLARATION) : values.start()]):
            continue
        try:
            numbers = re.sub(r"[uU\s]", "", values[1].decode()).split(",")
            yield bytes(int(number, 0) & 255 for number in numbers if number)
        except ValueError:
            continue


MAX_FILE_BYTES = 1 << 28  # Larger files are refused unread: no microcontroller holds a thousandth of it.


def load(
    path: Path,
    *,
    run_python: bool = False,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    values: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
    signature: str = "",
) -> library.Model:
    """Read a model file.

    Supported: TensorFlow Lite; ONNX, with external weight files; a Relax module as TVM's JSON; the
    first two in gzip or an archive, and TensorFlow Lite as an array in C; and, with
    ``run_python``, a Python program ``NAME.py`` that builds a Relax module (see
    :func:`utvm.compiler.read.exported_file.from_python`) or an archive ``NAME.pt2`` of ``torch.export``.
    Args:
        run_python: allow the last two, which run with all of this process's rights.
        shapes: of inputs of an ONNX model, or of TFLite's, with sizes left open by the file.
        values: of inputs of an ONNX model that become constants; one number is for all elements.
        signature: of a TensorFlow Lite file; without it, the file's first graph counts.
    """
    name, origin = names.library_name(Path(path.name.removesuffix(".gz")).stem), str(path)
    try:
        content = _content(path, signature)
        if model := _other_than_onnx(path, content, name, origin, run_python, shapes):
            _refuse_settings(model, origin, shapes, values)
            return model
        # Last, because an ONNX file has no magic number. Its parser and checker are C++.
        from utvm.compiler.read import onnx_file

        read = partial(onnx_file.from_onnx, content, name, origin, path.parent, shapes, values)
        return bounded.run_bounded(origin, "read the model", read)
    except UtvmError as error:
        error.hint = error.hint or refusal.HINT
        raise


def _content(path: Path, signature: str) -> bytes:
    content = unpack(path, _read(path))
    if not signature:
        return content
    if content[4:8] != tflite_graph.IDENTIFIER:
        raise ConfigError(f"{path}: has no signatures", "leave --set signature out; TensorFlow Lite files have them")
    return tflite_graph.choose_signature(content, signature, str(path))


def _refuse_settings(model: library.Model, origin: str, shapes: Collection[str], values: Collection[str]) -> None:
    if shapes and model.format != "tflite":
        raise ConfigError(f"{origin}: has fixed shapes", "leave --set shape out")
    if values:
        raise ConfigError(
            f"{origin}: has no input that --set can fix: {', '.join(values)}",
            "this is for ONNX models; --help lists the keys of --set",
        )


def _other_than_onnx(
    path: Path, content: bytes, name: str, origin: str, run_python: bool, shapes: Mapping[str, tuple[int, ...]]
) -> library.Model | None:
    if content[4:8] == tflite_graph.IDENTIFIER:
        return tflite_graph.from_tflite(content, name, origin, shapes)
    if content.startswith(exported_file.ARCHIVE):
        exported_file.check_archive(content, origin)
        _check_permission(path, ".pt2", run_python, "a PyTorch archive, which may hold a program")
        return exported_file.from_archive(content, name, origin)
    if exported_file.is_relax_json(content):
        return exported_file.from_json(content, name, origin)
    if path.suffix == ".py":
        _check_permission(path, ".py", run_python, "a Python program")
        return exported_file.from_python(path, name, origin)
    return None


def _check_permission(path: Path, suffix: str, run_python: bool, what: str) -> None:
    if path.suffix != suffix:
        raise ConfigError(f"{path}: is {what}", f"if you trust it, call it NAME{suffix} and give --run-python")
    if not run_python:
        raise ConfigError(f"{path}: is {what}", "if you trust it, give --run-python; else export it as ONNX")


def _read(path: Path) -> bytes:
    refuse_folder(path)
    try:
        beside = [] if path.exists() else [other.name for other in path.parent.iterdir()]
    except OSError:
        beside = []
    check_readable(path, did_you_mean(path.name, beside, "name a model's file"))
    with ConfigError.on_os_error(f"{path}: cannot be read"):
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: is {size} bytes long, too long for any board")
        return path.read_bytes()
