# SPDX-License-Identifier: Apache-2.0
"""Models inside other files are read; files without a model are refused with a hint."""

import gzip
import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from models.tflite_writer import Builder
from utvm.compiler import load
from utvm.compiler.read import model_file
from utvm.errors import ConfigError

_HDF = b"\x89HDF\r\n\x1a\n"  # HDF5 file format specification, II.A: format signature.


def model() -> bytes:
    builder = Builder()
    builder.tensor("x", (3,), "float32")
    builder.tensor("y", (3,), "float32")
    builder.operator("ABS", ["x"], ["y"])
    return builder.finish(["x"], ["y"])


def c_array(content: bytes, name: str = "g_model") -> bytes:
    """C source as written by ``xxd -i``, with common additions."""
    lines = [", ".join(f"0x{byte:02x}" for byte in content[start : start + 12]) for start in range(0, len(content), 12)]
    body = ",\n  ".join(lines)
    attributes = "__attribute__((aligned(16)))"
    return (
        f'#include "model.h"\n/* int8_t old[] = {{1}}; */ const int sizes[] = {{1, 2}};\n'
        f"alignas(16) const unsigned char {name}[] {attributes} = {{  // {{the model}}\n  {body},\n}};\n"
        f"const unsigned int {name}_len = {len(content)};\n"
    ).encode()


def archive(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name.replace("__", "/"), content)
    return stream.getvalue()


EDGE_IMPULSE = archive(
    **{
        "ei__src__edge-impulse-sdk__a.cpp": b"int a;",
        "ei__src__tflite-model__trained_model_ops_define.h": b"",
        "ei__src__tflite-model__tflite-trained-model.h": c_array(model(), "trained_tflite"),
    }
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("m.tflite.gz", gzip.compress(model())),
        ("m.cc", c_array(model())),
        ("m.cpp", c_array(model()).replace(b",", b"u,")),
        ("m.cpp", b"constexpr std::array<uint8_t, 9> m = {" + ",".join(map(str, model())).encode() + b"};"),
        ("m.h.gz", gzip.compress(c_array(model()))),
        ("m.zip", archive(**{"README.md": b"hello", "model__my.tflite": model()})),
        ("m.zip", EDGE_IMPULSE),
    ],
)
def test_model_inside_another_file_is_read(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    loaded = load(tmp_path / name)
    assert (loaded.format, loaded.name, loaded.content) == ("tflite", "m", model())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m.h5", _HDF + bytes(99), r"is a Keras model\n  hint: .*docs/keras\.md"),
        ("m.keras", archive(**{"config.json": b"{}", "model.weights.h5": _HDF}), "is a Keras model"),
        ("m.tflite", b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\n", "hint: .*git lfs pull"),
        ("m.onnx", b"\n<!DOCTYPE html><html><body>404</body></html>", "is a web page"),
        ("m.pt", archive(archive__version=b"3", **{"archive__data.pkl": b"x"}), r"torch\.save.*\n  hint: .*ONNX"),
        ("m.pt", archive(**{"m__data.pkl": b"x", "m__constants.pkl": b"x"}), "TorchScript program"),
        ("m.pkl", pickle.dumps({"a": 1}), r"is a Python pickle\n  hint: .*docs/sklearn\.md"),
        ("saved_model.pb", b"\x08\x01\x12\x01a", r"SavedModel\n  hint: .*from_saved_model"),
        ("m.zip", archive(**{"m__saved_model.pb": b"x"}), "SavedModel"),
        ("m.zip", archive(**{"tflite-model__tflite_learn_3_compiled.cpp": b"int a;"}), "Edge Impulse"),
        ("m.zip", archive(**{"a.tflite": model(), "b.tflite": model()}), "holds 2 models: a.tflite, b.tflite"),
        ("m.h", c_array(model()) + c_array(model(), "b"), "holds 2 models"),
        ("m.h", b"const int a[] = {1, 2};\n", "is C source without the array of a TFLite model"),
        ("m.gz", gzip.compress(model())[:-9], "is only a part of a gzip file"),
        ("m.gz", b"\x1f\x8b" + bytes(60), "is damaged gzip"),
        ("m.safetensors", (80).to_bytes(8, "little") + b'{"w":{"dtype":"F32"}}', "weights without operators"),
        ("m.tflite", b"\xef\xbb\xbf<!-- saved --><html>", "is a web page"),
        ("m.onnx", b"404: Not Found", r"an answer of a server, not a file\n  hint: download the model itself"),
        ("m.tar", bytes(257) + b"ustar" + bytes(99), r"is a tar archive\n  hint: unpack it"),
        ("m.7z", b"7z\xbc\xaf\x27\x1c" + bytes(60), "an archive of another kind"),
        ("m.png", b"\x89PNG\r\n\x1a\n" + bytes(60), r"a picture .*\n  hint: give it with --input"),
        ("m.elf", b"\x7fELF" + bytes(60), r"is a program, not a model\n  hint: firmware\.flash takes it"),
        ("m.pte", bytes(4) + b"ET12" + bytes(60), "is an ExecuTorch program"),
        ("m.npz", archive(**{"a.npy": b"\x93NUMPY"}), "is an archive of arrays"),
        ("m.xml", b'<?xml version="1.0"?>\n<net name="m">', "OpenVINO"),
    ],
)  # fmt: skip
def test_file_without_a_model_is_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load(tmp_path / name)


def test_saved_model_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"x")
    with pytest.raises(ConfigError, match="is a TensorFlow SavedModel"):
        load(tmp_path)


def test_too_large_gzip_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "_MAX_BYTES", 1000)
    (tmp_path / "m.gz").write_bytes(gzip.compress(bytes(1001)))
    with pytest.raises(ConfigError, match="is too large for any board"):
        load(tmp_path / "m.gz")


def test_numpy_array_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.zeros(3))
    with pytest.raises(ConfigError, match=r"not a model\n  hint: give it with --input"):
        load(tmp_path / "m.npy")
