# SPDX-License-Identifier: Apache-2.0
"""PyTorch models exported by ``torch.export``. PyTorch is an optional extra, used only here."""

import io
import logging
import zipfile
from typing import Any

from utvm.compiler.model import Model
from utvm.compiler.read.relax_file import from_module
from utvm.compiler.refusal import tvm_errors
from utvm.errors import CompileError, ConfigError

_LOG = logging.getLogger("utvm.compiler")
_MARK = b"quantized_decomposed"  # In the archive of a PT2E-quantised program.
ARCHIVE = b"PK\x03\x04"  # First bytes of a ZIP archive, as torch.export.save writes it.
MAX_UNPACKED_BYTES = 1 << 28

# Every archive contains one of them (PyTorch before 2.8, and since).
MARKS = ("serialized_exported_program.json", "archive_format")


def from_torch(program: Any, name: str) -> Model:
    origin = f"PyTorch model {name}"
    with tvm_errors(origin, "read the model"):
        from utvm.compiler.read.torch_program import import_program

        return from_module(import_program(program), name)


def from_archive(content: bytes, name: str, origin: str) -> Model:
    """Load an archive of ``torch.export.save``. It may unpickle, which runs code: only with the user's consent."""
    try:
        import torch
    except ImportError as error:
        raise ConfigError(
            f"{origin}: is a PyTorch model, and PyTorch is not installed", "install the extra: pip install .[torch]"
        ) from error
    if _MARK in content:
        _know_quantisation(origin)
    # It logs tracebacks for its own developers.
    output = logging.getLogger("torch.export")
    before, output.disabled = output.disabled, True
    try:
        program = torch.export.load(io.BytesIO(content))
    except Exception as error:  # PyTorch raises nearly every built-in kind
        _LOG.debug("%s cannot be read: %r", origin, error)
        raise CompileError(
            f"{origin}: is damaged, or of another version of PyTorch",
            "export the model again; --log-level debug logs PyTorch's message",
        ) from error
    finally:
        output.disabled = before
    model = from_torch(program, name)
    return Model(name, origin, model.format, model.content)


def _know_quantisation(origin: str) -> None:
    try:
        import torchao.quantization.pt2e  # noqa: F401  # It registers them.
    except ImportError as error:
        raise ConfigError(
            f"{origin}: is quantised by torchao, which is not installed", "install the extra: pip install .[torch]"
        ) from error


def check_archive(content: bytes, origin: str) -> None:
    """Check that an archive is one of ``torch.export`` before anything is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise ConfigError(f"{origin}: is a damaged archive, or only a part of one", "export the model again") from error
    if not any(member.filename.endswith(MARKS) for member in members):
        raise ConfigError(
            f"{origin}: is an archive, but not one that torch.export.save wrote",
            "export the model with torch.export.save, or as ONNX or TFLite",
        )
    if sum(member.file_size for member in members) > MAX_UNPACKED_BYTES:
        raise ConfigError(f"{origin}: is too large for any board")
