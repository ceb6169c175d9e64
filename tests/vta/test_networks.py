# SPDX-License-Identifier: Apache-2.0
"""Networks on CPU and VTA equal TensorFlow Lite Micro, bit for bit, on three VTAs; and the division of layers."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from three_vtas import CONFIGURATIONS

import utvm
from hil_tests.int8_cases import Int8Case, Quantised, convolution
from hil_tests.vta_cases import VTA_CASES
from models.digits import quantize
from models.tflite_reference import tflite_micro
from tests.cli.running import inv
from utvm import boards, firmware
from utvm.boards.accelerators import accelerator_of
from utvm.compiler import CompileOptions, Library, from_tflite, load
from utvm.drivers import choose
from utvm.errors import ConfigError
from utvm.firmware import compile_for
from utvm.selection import BoardSelection
from utvm.session.board_holder import open_session

_RESNET8 = Path(os.environ.get("UTVM_MODEL_CACHE", "")) / "pretrainedResnet_quant.tflite"


def board_with(folder: Path, name: str, accelerator: dict[str, Any]) -> boards.Board:
    """Create a process board with an accelerator."""
    target = folder / name
    target.mkdir(parents=True)
    content = yaml.safe_load((boards.load("host").directory / "board.yaml").read_text())
    (target / "board.yaml").write_text(yaml.safe_dump(content | {"name": name, "accelerator": accelerator}))
    for file in CONFIGURATIONS.values():
        shutil.copy(file, target)
    return boards.load(str(target))


def check(cases: Sequence[Int8Case], configuration: str, tmp_path: Path) -> None:
    """Run layers on a VTA and compare them with the reference kernels; the CPU runs layers that VTA refuses."""
    board = board_with(tmp_path, "other", {"vta": {"clock_hz": 1, "config": f"{configuration}.json"}})
    compiled = {
        case.name: compile_for(
            board, from_tflite(case.content(), f"vta_{case.name}"), CompileOptions(accelerator="all")
        )
        for case in cases
    }
    assert sum(bool(library.accelerator) for library in compiled.values()) > len(cases) // 2
    image = firmware.build(board, list(compiled.values()), "rpc")
    with open_session(choose(board, BoardSelection()), image, tmp_path / "logs", print) as session:
        for case in cases:
            inputs = case.runs()
            for sample, (expected,) in zip(inputs, tflite_micro(case.content(), inputs), strict=True):
                output = session.run(compiled[case.name].name, sample).outputs[0]
                np.testing.assert_array_equal(output, expected, case.name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "configuration",
    [pytest.param(name, marks=pytest.mark.nightly if name in ("batch", "small") else ()) for name in CONFIGURATIONS],
)
def test_layers_equal_the_reference_kernels(configuration: str, tmp_path: Path) -> None:
    check(VTA_CASES, configuration, tmp_path)


def _generated(seed: int) -> Int8Case:
    """Convolution of random sizes."""
    random = np.random.default_rng(seed)
    height, width, inputs, outputs = (int(random.integers(1, limit)) for limit in (24, 24, 70, 70))
    kernel = (int(random.integers(1, min(height, 7) + 1)), int(random.integers(1, min(width, 7) + 1)))
    stride, same = int(random.integers(1, 4)), bool(random.integers(2))
    sides = (height, width) if same else (height - kernel[0] + 1, width - kernel[1] + 1)
    output_sides = tuple(-(-side // stride) for side in sides)
    zeros = [int(zero) for zero in random.integers(-128, 128, 2)]
    return convolution(
        f"generated {seed}",
        Quantised((1, height, width, inputs), 0.05, zeros[0]),
        Quantised((1, *output_sides, outputs), float(random.uniform(0.1, 3)), zeros[1]),
        kernel,
        stride_h=stride,
        stride_w=stride,
        padding="SAME" if same else "VALID",
    )


@pytest.mark.nightly
@pytest.mark.parametrize("configuration", sorted(CONFIGURATIONS))
@pytest.mark.parametrize("seed", range(3))
def test_generated_layers_equal_the_reference_kernels(seed: int, configuration: str, tmp_path: Path) -> None:
    check([_generated(1000 * seed + number) for number in range(12)], configuration, tmp_path)


@pytest.mark.nightly
@pytest.mark.skipif(not _RESNET8.is_file(), reason="UTVM_MODEL_CACHE names no folder with the MLPerf Tiny models")
@pytest.mark.parametrize("configuration", sorted(CONFIGURATIONS))
@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_resnet8_equals_the_reference_kernels(executor: Any, configuration: str, tmp_path: Path) -> None:
    board = board_with(tmp_path, "other", {"vta": {"clock_hz": 1, "config": f"{configuration}.json"}})
    library = compile_for(board, load(_RESNET8), CompileOptions(executor=executor, accelerator="all"))
    kinds = [call.kind for call in library.calls]
    assert kinds.count("conv2d_int8_on_vta") == len(library.decisions) == 10 and "conv2d_int8" not in kinds
    shape = library.inputs[0].shape
    images = [[image] for image in np.random.default_rng(0).integers(-128, 128, (20, *shape), "int8")]
    with utvm.open(str(board.directory)) as opened:
        network = opened.load(library)
        for image, (expected,) in zip(images, tflite_micro(_RESNET8.read_bytes(), images), strict=True):
            np.testing.assert_array_equal(network.run(*image).outputs[0], expected)


def compile_wide(board: boards.Board, selection: Any) -> Library:
    wide = convolution("wide", Quantised((1, 8, 8, 64)), Quantised((1, 8, 8, 64), 0.9), (3, 3), padding="SAME")
    return compile_for(board, from_tflite(wide.content(), "wide"), CompileOptions(accelerator=selection))


@pytest.mark.slow
def test_faster_layer_goes_to_the_accelerator(tmp_path: Path) -> None:
    fast = board_with(tmp_path, "fast", {"vta": {"clock_hz": 1_000_000_000}})
    slow = board_with(tmp_path, "slow", {"vta": {"clock_hz": 100_000}})
    (offloaded,) = compile_wide(fast, "auto").decisions
    assert offloaded.where == "vta 1x16_i8w8a32_15_15_18_17"
    assert (
        0 < offloaded.accelerator_cycles < offloaded.cpu_cycles
        and offloaded.reason == "it is estimated to be faster there"
    )
    (step,) = [step for step in accelerator_of(fast).model_steps(compile_wide(fast, "auto")) if step["instructions"]]
    assert 0.5 * step["dram_nbytes"] < offloaded.moved_bytes <= step["dram_nbytes"]
    assert offloaded.accelerator_cycles > 0.7 * step["modelled_cycles"]
    library = compile_wide(slow, "auto")
    (on_cpu,) = library.decisions
    assert (on_cpu.where, library.accelerator) == ("CPU", "")
    assert on_cpu.accelerator_cycles > on_cpu.cpu_cycles and on_cpu.reason == "it is estimated to be faster on the CPU"
    assert compile_wide(slow, "all").accelerator == offloaded.where
    assert not compile_wide(fast, "off").decisions


def test_host_uses_the_accelerator_only_on_request() -> None:
    host = boards.load("host")
    assert compile_wide(host, "auto") == compile_wide(host, "off")
    assert compile_wide(host, "all").accelerator


def test_unsupported_layer_stays_on_the_cpu_with_reason() -> None:
    options: dict[str, dict[str, Any]] = {
        "depthwise": {"depthwise": True},
        "dilated": {"dilation_h_factor": 2, "dilation_w_factor": 2},
        "differ": {"stride_h": 2},
    }
    for name, further in options.items():
        rows = 5 if name == "differ" else 9
        source, output = Quantised((1, 9, 8, 4)), Quantised((1, rows, 8, 4), 0.3)
        case = convolution(f"kept {name}", source, output, (3, 3), padding="SAME", **further)
        library = compile_for(
            boards.load("host"), from_tflite(case.content(), "kept"), CompileOptions(accelerator="all")
        )
        (decision,) = library.decisions
        assert (decision.where, library.accelerator) == ("CPU", "") and name in decision.reason


def test_library_for_another_vta_is_refused_before_linking(tmp_path: Path) -> None:
    small = board_with(tmp_path, "small", {"vta": {"clock_hz": 1, "config": "small.json"}})
    library = compile_wide(boards.load("host"), "all")
    with pytest.raises(ConfigError, match=r"compiled for the accelerator vta 1x16_\w+, and small has vta 1x8_"):
        firmware.build(small, [library], "rpc")
    with pytest.raises(ConfigError, match="and mps2-an385 has none"):
        firmware.build(boards.load("mps2-an385"), [library])


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mps2-an385 has no accelerator"):
        compile_wide(boards.load("mps2-an385"), "all")
    with pytest.raises(ConfigError, match=r"board\.yaml: accelerator\.npu: there is no such accelerator"):
        compile_wide(board_with(tmp_path / "a", "strange", {"npu": {}}), "auto")
    with pytest.raises(ConfigError, match=r"accelerator\.vta: clock_hz"):
        compile_wide(board_with(tmp_path / "b", "strange", {"vta": {"clock_hz": 0}}), "auto")
    for number, address in enumerate((0x43C00400, 0xFFFFF000)):
        with pytest.raises(ConfigError, match=r"accelerator\.vta: registers"):
            wrong = board_with(tmp_path / f"c{number}", "strange", {"vta": {"clock_hz": 1, "registers": address}})
            compile_wide(wrong, "auto")


@pytest.mark.slow
def test_report_has_the_place_and_reason_of_layers(tmp_path: Path) -> None:
    command = ("model.report", "--model", quantize.MODEL, "--board", "host", "--output", tmp_path)
    completed = inv(*command, "--set", "accelerator=all")
    assert completed.returncode == 0, completed.stderr
    assert "accelerator=all requests it" in completed.stdout and "bytes moved" in completed.stdout
    (report,) = tmp_path.glob("*/compile.json")
    decisions = json.loads(report.read_text())["decisions"]
    assert decisions and all(
        decision["where"].startswith("vta ") and decision["moved_bytes"] > 0 for decision in decisions
    )
    assert "CPU or accelerator" in report.with_suffix(".html").read_text()
    profile = ("model.profile", "--model", quantize.MODEL, "--board", "host", "--output", tmp_path)
    completed = inv(*profile, "--set", "accelerator=all")
    assert completed.returncode == 0 and "on the accelerator, by its model:" in completed.stdout, completed.stderr
    (counts_file,) = tmp_path.glob("*/accelerator.json")
    (first, *_) = [step for step in json.loads(counts_file.read_text()) if step["instructions"]]
    assert first["dram_nbytes"] > 0 and first["tokens"] > 0
    assert first["modelled_compute_cycles"] <= first["modelled_cycles"]
    refused = inv(*command, "--set", "accelerator=most")
    assert refused.returncode == 2 and "--set accelerator cannot be 'most'" in refused.stderr
