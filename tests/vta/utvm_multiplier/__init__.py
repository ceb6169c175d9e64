# SPDX-License-Identifier: Apache-2.0
"""A second accelerator, as a third-party package: this folder and its entry point.

It multiplies int8 matrices and returns int32 sums, which the CPU rounds. A test can make its models add a wrong
value, to see which layers they computed.
"""

from pathlib import Path

from utvm.boards.accelerators import Accelerator, AcceleratorPart, BoardAccelerator, Sources
from utvm.virtual.spec import Peripheral
from utvm_multiplier.lowering import offer

_FOLDER = Path(__file__).parent


class _Multiplier(AcceleratorPart):
    """Test settings: ``wrong_by`` is added to each sum; a device without ``answers`` never finishes."""

    wrong_by: int = 0
    answers: bool = True


def _fit(block: _Multiplier, _: Path) -> BoardAccelerator:
    wrong = {"multiplier_config.h": f"#define MULTIPLIER_WRONG_BY ({block.wrong_by})\n"}
    identity, driver = "multiplier", Sources(include=(_FOLDER,))
    process = Sources((_FOLDER / "process.c",), generated=wrong)
    if block.registers is None:
        return BoardAccelerator(identity, offer, driver, process)
    return BoardAccelerator(
        identity,
        offer,
        driver,
        process,
        Sources((_FOLDER / "registers.c",), defines=(f"MULTIPLIER_REGISTERS={block.registers:#x}u",)),
        on_bus=Peripheral(
            model="utvm_multiplier.on_bus:create",
            address=block.registers,
            settings={"wrong_by": block.wrong_by, "answers": int(block.answers)},
        ),
        explain=lambda words: words.replace("multiplier:0:", "the multiplier:"),
    )


ACCELERATOR = Accelerator("multiplier", _Multiplier, _fit)
