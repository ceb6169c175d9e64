# SPDX-License-Identifier: Apache-2.0
"""Files that hold a model inside (gzip, archives, C arrays), and files that are not models, with hints."""

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from utvm.base.storage.config import read_yaml
from utvm.compiler.read import exported_file, tflite_graph
from utvm.errors import ConfigError

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
