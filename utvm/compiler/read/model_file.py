# SPDX-License-Identifier: Apache-2.0
"""Read a model file by content, not name; Python and PyTorch archives may run code: with consent only."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from utvm.base.storage.files import check_readable
from utvm.compiler import bounded, library, names, refusal
from utvm.compiler.read import exported_file, packaging, tflite_graph
from utvm.errors import ConfigError, UtvmError, did_you_mean

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
    try:
        return _load(path, run_python, shapes, values, signature)
    except UtvmError as error:
        error.hint = error.hint or refusal.HINT
        raise


def _load(
    path: Path,
    run_python: bool,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, tuple[float, ...]],
    signature: str,
) -> library.Model:
    content = packaging.unpack(path, _read(path))
    name, origin = names.library_name(Path(path.name.removesuffix(".gz")).stem), str(path)
    if signature:
        if content[4:8] != tflite_graph.IDENTIFIER:
            raise ConfigError(
                f"{path}: has no signatures", "leave --set signature out; TensorFlow Lite files have them"
            )
        content = tflite_graph.choose_signature(content, signature, origin)
    model = _other_than_onnx(path, content, name, origin, run_python, shapes)
    if model is None:
        # Last, because an ONNX file has no magic number. Its parser and checker are C++.
        from utvm.compiler.read import onnx_file

        read = partial(onnx_file.from_onnx, content, name, origin, path.parent, shapes, values)
        return bounded.run_bounded(origin, "read the model", read)
    if shapes and model.format != "tflite":
        raise ConfigError(f"{path}: has fixed shapes", "leave --set shape out")
    if values:
        raise ConfigError(
            f"{path}: has no input that --set can fix: {', '.join(values)}",
            "this is for ONNX models; --help lists the keys of --set",
        )
    return model


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
    packaging.refuse_folder(path)
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
