"""Reading a model file, of whichever format; what a file holds counts, not what it is called."""

from pathlib import Path

from utvm.compiler.model import Model
from utvm.compiler.names import library_name
from utvm.compiler.read import onnx_file, relax_file, tflite_file, torch_file
from utvm.errors import ConfigError

MAX_FILE_BYTES = 1 << 28
"""Larger files are refused unread: no microcontroller holds a thousandth of it."""


def load(path: Path) -> Model:
    """Read a model file.

    It may be TensorFlow Lite; ONNX, with the files that its weights may lie in; a Relax module, as TVM's JSON or
    as Python, which is run (see :func:`utvm.compiler.read.relax_file.from_python`); or an archive of
    ``torch.export``.

    Raises:
        ConfigError: there is no such file, it is a folder, or it is not a whole model of one of these formats.
        CompileError: it is a model, but not one that can run on a board.
    """
    content = _read(path)
    name, origin = library_name(path.stem), str(path)
    if content[4:8] == tflite_file.IDENTIFIER:
        return tflite_file.from_tflite(content, name, origin)
    if content.startswith(torch_file.ARCHIVE):
        return torch_file.from_archive(content, name, origin)
    if relax_file.is_relax_json(content):
        return relax_file.from_json(content, name, origin)
    if relax_file.is_relax_python(content):
        return relax_file.from_python(path, name, origin)
    # Last, as an ONNX file has no mark of its own.
    return onnx_file.from_onnx(content, name, origin, path.parent)


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder", "name the model's file in it")
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file", "name a model file")
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: is {size} bytes long, too long for any board")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
