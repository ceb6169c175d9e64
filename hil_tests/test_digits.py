"""A trained model on the board: the answers are TVM's own, bit for bit, and mostly right."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from models.digits.data import held_out
from utvm import compiler
from utvm.compiler import Library, Model
from utvm.firmware import Firmware
from utvm.hil.results import ModelResult
from utvm.session import HostDriven, RunResult
from utvm.toolchain import ROOT

_FEWEST_IMAGES = 200
# models/digits/README.md promises 98.75 % of 400.
_LOWEST_ACCURACY = 0.97


@pytest.fixture(scope="module")
def model() -> Model:
    """The trained model."""
    return compiler.load(ROOT / "models" / "digits" / "digits.onnx")


@pytest.fixture(scope="module")
def image(firmware: Callable[[Sequence[Library]], Firmware], model: Model) -> Firmware:
    """The model alone, so that its sizes are the image's."""
    return firmware([compiler.compile_model(model)])


@pytest.fixture(scope="module")
def on_host(model: Model) -> list[npt.NDArray[Any]]:
    """What TVM makes of every held-out image on this computer."""
    reference = compiler.reference(model)
    return [reference([picture[np.newaxis]])[0] for picture in held_out()[0]]


def test_every_held_out_image_gives_what_tvm_gives_on_the_host(
    image: Firmware,
    on_host: list[npt.NDArray[Any]],
    session: Callable[[Firmware], HostDriven],
    record_model: Callable[..., ModelResult],
) -> None:
    pictures, labels = held_out()
    assert len(pictures) >= _FEWEST_IMAGES
    name = image.libraries[0].name
    running = session(image)
    runs: list[RunResult] = []
    for number, (picture, expected) in enumerate(zip(pictures, on_host, strict=True)):
        run = running.run(name, [picture[np.newaxis]])
        assert run.outputs[0].tobytes() == expected.tobytes(), (
            f"image {number}: {run.outputs[0]} on the board, {expected} on the host"
        )
        runs.append(run)
    result = record_model(name, image, runs, executor="host-driven", labels=labels.tolist())
    assert result.accuracy is not None
    assert result.accuracy >= _LOWEST_ACCURACY
    right = sum(int(output.argmax()) == label for output, label in zip(on_host, labels, strict=True))
    assert result.accuracy == pytest.approx(right / len(labels))


def test_two_runs_agree_to_the_instruction(image: Firmware, session: Callable[[Firmware], HostDriven]) -> None:
    running = session(image)
    picture = held_out()[0][0][np.newaxis]
    first, second = (running.run(image.libraries[0].name, [picture]) for _ in range(2))
    running.reset()
    third = running.run(image.libraries[0].name, [picture])
    assert first.outputs[0].tobytes() == second.outputs[0].tobytes() == third.outputs[0].tobytes()
    if first.unit != "instructions":
        pytest.skip("a chip counts cycles, which depend on what its caches hold")
    assert first.count == second.count == third.count
