# SPDX-License-Identifier: Apache-2.0
"""Standalone firmware, as a process on this computer, and the reading of its reports."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hil_tests.programs import handwritten, line_of
from models.tflite_reference import tflite_micro
from utvm import boards, firmware
from utvm.compiler import Library, compile_model, load
from utvm.errors import BoardError
from utvm.firmware import Firmware
from utvm.paths import ROOT
from utvm.session.fault import RECORD_SIZE, DeviceFault
from utvm.session.standalone import FaultReport, Report, ReportReader, ResultReport, result_of, wait_for_report
from utvm.session.transport import ChildProcess

X = np.array([1, -2, 3, 70000], np.int32)


def _program(library: Library, *stored: npt.NDArray[Any]) -> Firmware:
    return firmware.build(boards.load("host"), [library], "standing_alone", stored)


def _run(image: Firmware) -> Report:
    completed = subprocess.run([image.elf], capture_output=True, timeout=30, check=False)
    assert completed.stdout.startswith(b"utvm: host is up\r\n")
    (report,) = ReportReader().feed(completed.stdout)
    assert completed.returncode == isinstance(report, FaultReport)
    return report


def _nothing() -> None:
    pass


def test_standalone_process_equals_the_reference() -> None:
    path = ROOT / "models" / "digits" / "digits_int8.tflite"
    image = np.random.default_rng(1).integers(-128, 128, (1, 8, 8, 1), np.int8)
    library = compile_model(load(path))
    program = _program(library, image)
    result = result_of(_run(program), program, "ns")
    ((expected,),) = tflite_micro(path.read_bytes(), [[image]])
    assert result.outputs[0].tobytes() == expected.tobytes()
    assert result.outputs[0].shape == (1, 10)
    assert result.count > 0


def test_outputs_longer_than_a_line_are_read() -> None:
    library = handwritten(
        "both",
        "  for (int i = 0; i < 4; i++) {\n    y[i] = x[i] + ((const int32_t *)inputs[1])[i];\n"
        "    ((int32_t *)outputs[1])[i] = x[i];\n  }\n  return 0;",
        inputs=2,
        outputs=2,
    )
    image = _program(library, X, 2 * X)
    result = result_of(_run(image), image, "ns")
    assert [output.tolist() for output in result.outputs] == [(3 * X).tolist(), X.tolist()]


def test_error_code_of_the_model_is_an_error(doubler: Library) -> None:
    failing = _program(handwritten("failing", "  return x[1];"), X)
    with pytest.raises(BoardError, match="model failing returned error code -2"):
        result_of(_run(failing), failing, "ns")
    with pytest.raises(BoardError, match="ran failing"):
        result_of(_run(failing), _program(doubler, X), "ns")


def test_fault_is_reported_completely() -> None:
    bad = handwritten("bad", "  return *(volatile int32_t *)(intptr_t)(x[0] & 4); /* here */")
    image = _program(bad, X)
    report = _run(image)
    assert isinstance(report, FaultReport)
    assert len(report.record) == RECORD_SIZE
    with pytest.raises(DeviceFault) as caught:
        result_of(report, image, "ns")
    assert caught.value.record.meaning.name == "SIGSEGV"
    assert f"bad.c:{line_of(bad, '/* here */')}" in caught.value.source_line
    assert any("utvm_main" in line for line in caught.value.backtrace)


def test_fault_record_of_another_size_is_refused(doubler: Library) -> None:
    with pytest.raises(BoardError, match="cannot be read") as caught:
        result_of(FaultReport(b"abc", b""), _program(doubler, X), "ns")
    assert not isinstance(caught.value, DeviceFault)


def test_outputs_of_another_size_are_refused(doubler: Library) -> None:
    with pytest.raises(BoardError, match="outputs of \\[15\\] bytes"):
        result_of(ResultReport("doubler", "power on", 0, 1, 2, (bytes(15),)), _program(doubler, X), "ns")


def test_report_of_a_process_is_read(doubler: Library, tmp_path: Path) -> None:
    image = _program(doubler, X)
    with ChildProcess("host", [image.elf], log=tmp_path / "log") as child:
        result = result_of(wait_for_report(child, "host", 30.0, _nothing), image, "ns")
    assert result.outputs[0].tolist() == (2 * X).tolist()


class Silence:
    """A line with some bytes on it, and then none."""

    def __init__(self, data: bytes) -> None:
        self.output = data

    def read(self, timeout: float) -> bytes:
        data, self.output = self.output, b""
        return data

    def write(self, data: bytes) -> None:
        raise AssertionError("a listener only listens")

    def close(self) -> None:
        pass


def test_last_output_of_a_lost_board_is_quoted() -> None:
    class GoneError(Exception):
        pass

    def fail() -> None:
        raise GoneError

    incomplete = b"utvm: result m\r\nutvm: end 00000000\r\nutvm: result m\r\nutvm: sta"
    with pytest.raises(BoardError, match=r"made no report within 0\.05 s, but 1 damaged ones.*utvm: sta"):
        wait_for_report(Silence(incomplete), "b", 0.05, _nothing)
    with pytest.raises(GoneError):
        wait_for_report(Silence(incomplete), "b", 5.0, fail)
