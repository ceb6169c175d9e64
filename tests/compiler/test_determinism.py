# SPDX-License-Identifier: Apache-2.0
"""A model has the same library in this process, in a new process and from the cache."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from host_library import FLAGS, write_sources

from hil_tests.operator_cases import OPERATOR_CASES
from utvm.compiler import Target, compile_model, load
from utvm.compiler.build import build_library

DIGITS = Path(__file__).parents[2] / "models" / "digits" / "digits.onnx"
ROOT = DIGITS.parents[2]

_DIGEST = """
import sys
from pathlib import Path
from utvm.compiler import load
from utvm.compiler.build import build_library
from hil_tests.operator_cases import OPERATOR_CASES
print(build_library(load(Path(sys.argv[1])), "digits").digest)
for case in OPERATOR_CASES[:: int(sys.argv[2])]:
    print(case.name, build_library(case.model(), "case").digest)
"""


def digests(hash_seed: str, stride: int) -> str:
    return subprocess.run(
        [sys.executable, "-c", _DIGEST, DIGITS, str(stride)],
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT), "HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    first = digests("1", 12)
    assert len(first.splitlines()) > 6
    assert digests("2", 12) == first


@pytest.mark.nightly
def test_bytes_are_equal_in_three_processes() -> None:
    first = digests("0", 1)
    assert digests("12345", 1) == first
    assert digests("99", 1) == first


def test_second_build_is_equal() -> None:
    model = load(DIGITS)
    assert build_library(model, "digits") == build_library(model, "digits")


def test_relax_digest_is_stable() -> None:
    case = next(case for case in OPERATOR_CASES if case.name == "conv2d_nhwc")
    assert case.model().format == "relax"
    assert case.model().digest == case.model().digest


def test_library_names_its_target_and_extensions_change_its_c() -> None:
    model = load(DIGITS.with_name("digits_int8.tflite"))
    targets = [Target(), Target("slow", row="a/slow"), Target("fast", ("dsp",), "a/fast")]
    plain, slow, fast = (compile_model(model, target=target) for target in targets)
    # A library's target tells how many bytes of weights are copied to RAM.
    assert [library.target for library in (plain, slow, fast)] == [replace(item, weights_in_ram=0) for item in targets]
    assert slow.sources == plain.sources
    assert slow.digest != plain.digest
    assert "dsp_tile" in fast.sources["digits_int8_operators.c"]
    assert "dsp_tile" not in plain.sources["digits_int8_operators.c"]


@pytest.mark.slow
def test_cached_library_is_equal_without_tvm() -> None:
    fresh = compile_model(load(DIGITS))
    code = (
        "import sys; from pathlib import Path; from utvm.compiler import compile_model, load\n"
        f"library = compile_model(load(Path({str(DIGITS)!r})))\n"
        "assert 'tvm' not in sys.modules\nprint(library.digest)"
    )
    completed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == fresh.digest


def test_importing_the_compiler_does_not_import_tvm() -> None:
    code = "import sys, utvm.compiler; assert 'tvm' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_global_symbols_start_with_the_name(tmp_path: Path) -> None:
    library = compile_model(load(DIGITS), name="my model")
    assert library.name == "my_model"
    for file in write_sources(library, tmp_path):
        subprocess.run(["gcc", *FLAGS, "-c", file, "-o", file.with_suffix(".o")], check=True)
        symbols = subprocess.run(
            ["nm", "--defined-only", "--extern-only", file.with_suffix(".o")],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        names = [line.split()[-1] for line in symbols.splitlines()]
        assert names and all(name.startswith("my_model_") for name in names)
