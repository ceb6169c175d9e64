# SPDX-License-Identifier: Apache-2.0
"""Model files of all formats are recognised by content, not by name."""

import importlib.util
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.tflite_writer import Builder
from utvm.compiler import compile_model, from_onnx, from_torch, load, reference
from utvm.errors import CompileError, ConfigError

DIGITS = (Path(__file__).parents[2] / "models" / "digits" / "digits.onnx").read_bytes()

SCRIPT = """
from tvm.script import ir as I, relax as R

@I.ir_module
class Doubler:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            y = R.add(x, x)
            R.output(y)
        return y
"""


def tflite() -> bytes:
    builder = Builder()
    builder.tensor("serving_default_x:0", (2, 3), "float32")
    builder.tensor("zwei/mal;x", (2, 3), "float32")
    builder.operator("ADD", ["serving_default_x:0"] * 2, ["zwei/mal;x"])
    return builder.finish(["serving_default_x:0"], ["zwei/mal;x"])


def is_doubler(path: Path) -> bool:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    return bool((reference(load(path))([array])[0] == 2 * array).all())


@pytest.mark.parametrize("name", ["m.tflite", "m.onnx", "m"])
def test_tflite_is_recognised_by_content(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(tflite())
    model = load(tmp_path / name)
    assert (model.format, model.name, model.origin) == ("tflite", "m", str(tmp_path / name))


def test_onnx_is_recognised_by_content(tmp_path: Path) -> None:
    (tmp_path / "digits.tflite").write_bytes(DIGITS)
    assert load(tmp_path / "digits.tflite").digest == from_onnx(DIGITS, "digits").digest


@pytest.mark.slow
def test_relax_is_loaded_from_python_and_json(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    model = load(tmp_path / "script.py", run_python=True)
    assert model.format == "relax"
    (tmp_path / "m.onnx").write_bytes(b"\n" + model.content)
    assert load(tmp_path / "m.onnx").format == "relax" and is_doubler(tmp_path / "m.onnx")


def test_tflite_is_executed(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(tflite())
    assert is_doubler(tmp_path / "m")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import tvm\nraise ValueError('no weights')", "raises ValueError: no weights"),
        ("import tvm", "must define one Relax module, but defines none"),
        ("import tvm\nimport sys\nsys.exit(3)", "raises SystemExit: 3"),
    ],
)
def test_python_without_a_module_is_refused(source: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(source)
    with pytest.raises(CompileError, match=message):
        load(tmp_path / "m.py", run_python=True)


@pytest.mark.parametrize(
    ("name", "run_python", "message"),
    [
        ("m.py", False, "m.py: is a Python program\n  hint: .*--run-python"),
        ("m.onnx", True, "m.onnx: is not an ONNX file"),
        ("m", True, "m: is not an ONNX file"),
        ("m.PY", True, "m.PY: is not an ONNX file"),
    ],
)
def test_program_runs_only_by_option_and_suffix(name: str, run_python: bool, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f"import tvm\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ConfigError, match=message):
        load(tmp_path / name, run_python=run_python)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("name", "run_python"), [("m.pt2", False), ("m.onnx", True)])
def test_pytorch_archive_is_unpickled_only_by_option(name: str, run_python: bool, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("m/archive_format", "pt2")
    with pytest.raises(ConfigError, match=r"is a PyTorch archive.*\n  hint: .*--run-python"):
        load(tmp_path / name, run_python=run_python)


@pytest.mark.parametrize(
    "content",
    [
        b'{"root_index": 0',
        b'{"root_index": 3, "nodes": []}',
        b'{"root_index": 0, "nodes": [{"type": "int", "data": 3}]}',
        b'{"root_index": 1, "nodes": [{"type": "ffi.Array", "data": [1]}, {"type": "ir.IRModule", "data": {}}]}',
        b'{"root_index": 0, "nodes": ' + b"[" * 100_000,
    ],
)
def test_damaged_json_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(ConfigError, match="is not a Relax module as JSON, or a damaged one"):
        load(tmp_path / "m.json")


@pytest.mark.slow
def test_json_refused_by_tvm_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text('{"root_index": 0, "nodes": [{"type": "ir.IRModule", "data": {"functions": 9}}]}')
    with pytest.raises(CompileError, match="TVM could not read the module"):
        load(tmp_path / "m.json")


@pytest.mark.parametrize("content", [b"PK\x03\x04" * 9, b"PK\x03\x04" + bytes(100)])
def test_damaged_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(content)
    with pytest.raises(ConfigError, match="is a damaged archive"):
        load(tmp_path / "m.pt2")


def test_other_archive_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr("notes.md", "x")
    with pytest.raises(ConfigError, match=r"is an archive, but not one that torch\.export\.save wrote"):
        load(tmp_path / "m.zip")


def test_without_pytorch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as archive:
        archive.writestr("m/archive_format", "pt2")
    with pytest.raises(ConfigError, match=r"PyTorch is not installed\n  hint: install the extra: .*\[torch\]"):
        load(tmp_path / "m.pt2", run_python=True)


@pytest.mark.nightly
@pytest.mark.skipif(
    importlib.util.find_spec("torchao") is None, reason="torchao, of the optional extra torch, is not installed"
)
def test_torchao_program_is_loaded(tmp_path: Path) -> None:
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as quantizer

    layers = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 3, 3)).eval()
    example = torch.rand(1, 1, 8, 8)
    configuration = quantizer.X86InductorQuantizer().set_global(
        quantizer.get_default_x86_inductor_quantization_config()
    )
    prepared = prepare_pt2e(torch.export.export(layers, (example,)).module(), configuration)
    for _ in range(8):
        prepared(torch.rand(1, 1, 8, 8))
    program = torch.export.export(convert_pt2e(prepared), (example,))
    torch.export.save(program, tmp_path / "q.pt2")
    model = load(tmp_path / "q.pt2", run_python=True)
    expected = program.module()(example).detach().numpy()
    (result,) = reference(model)([example.numpy()])
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert "conv2d_int8" in [call.kind for call in compile_model(model).calls]


def test_missing_torchao_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torchao", None)
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as archive:
        archive.writestr("m/archive_format", "pt2 quantized_decomposed")
    with pytest.raises(ConfigError, match=r"quantised by torchao, which is not installed\n  hint: install the extra"):
        load(tmp_path / "m.pt2", run_python=True)


@pytest.mark.nightly
@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch, of the optional extra torch, is not installed"
)
def test_all_unsupported_torch_operators_are_named() -> None:
    import torch

    class Strange(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.det(x.reshape(4, 4)), torch.fft.rfft(x).abs(), torch.linalg.qr(x.reshape(4, 4))[0]

    program = torch.export.export(Strange(), (torch.rand(16),))
    with pytest.raises(CompileError) as caught:
        from_torch(program, "strange")
    first, *lines = caught.value.message.splitlines()
    assert first == "PyTorch model strange: cannot be compiled, for 3 reasons:"
    named = {line.split()[0] for line in lines if line.endswith("the operator is not supported")}
    assert named == {"_linalg_det.default", "_fft_r2c.default", "linalg_qr.default"}
    assert "as ONNX" in caught.value.hint


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch, of the optional extra torch, is not installed"
)
def test_damaged_pytorch_archive_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import torch

    good, broken = tmp_path / "m.pt2", tmp_path / "broken.pt2"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.rand(1, 3),)), good)
    with zipfile.ZipFile(good) as archive, zipfile.ZipFile(broken, "w") as damaged:
        for member in archive.namelist():
            content = archive.read(member)
            damaged.writestr(member, b"[]" if member.endswith("model.json") else content)
    with pytest.raises(CompileError, match=r"broken\.pt2: is damaged, or of another version of PyTorch\n  hint: "):
        load(broken, run_python=True)
    assert "Traceback" not in caplog.text


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch, of the optional extra torch, is not installed"
)
def test_pytorch_archive_is_loaded(tmp_path: Path) -> None:
    import torch

    layers = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(64, 10),
    ).eval()  # fmt: skip
    example = torch.rand(1, 1, 8, 8)
    torch.export.save(torch.export.export(layers, (example,)), tmp_path / "m.pt2")
    (result,) = reference(load(tmp_path / "m.pt2", run_python=True))([example.numpy()])
    np.testing.assert_allclose(result, layers(example).detach().numpy(), rtol=1e-5, atol=1e-6)
