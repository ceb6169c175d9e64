"""Reading an ONNX file."""

from pathlib import Path

from utvm.compiler.model import Model
from utvm.compiler.names import identifier
from utvm.errors import ConfigError


def load(path: Path) -> Model:
    """Read an ONNX file.

    Raises:
        ConfigError: there is no such file, or it is not an ONNX model.
        CompileError: it is one, but not one that can run on a board.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", "name an ONNX file") from error
    return Model(identifier(path.stem, "model"), str(path), "onnx", content)
