# SPDX-License-Identifier: Apache-2.0
"""What ``model.profile --estimate`` prints beside the counts: cycles that nobody counted, and what they leave."""

from dataclasses import dataclass

from rich.table import Table

from utvm.cli.opening import Opened
from utvm.cli.output import OUT
from utvm.errors import ConfigError
from utvm.firmware.stack import LEAVES_OUT, llvm_version, loop_rates
from utvm.session.profile import Profile


@dataclass(frozen=True)
class StepEstimate:
    """What a step is estimated to take; the last three are None where it has no loop that LLVM can read."""

    number: int
    operator: str
    instructions: int
    loop_in: str | None = None
    cycles_per_instruction: float | None = None
    estimated_cycles: int | None = None


@dataclass(frozen=True)
class CycleEstimate:
    """An estimate of a run's cycles: of which core, by what, what it leaves out, and of each step."""

    core: str
    estimated_by: str
    leaves_out: str
    estimated_cycles: int
    instructions_without_estimate: int
    steps: tuple[StepEstimate, ...]


def check_counts_instructions(unit: str) -> None:
    """Refuse to estimate what a board counts."""
    if unit != "instructions":
        raise ConfigError(
            f"this board counts {unit} itself, and no instructions to estimate cycles from", "leave --estimate out"
        )


def estimate_of(ready: Opened, profile: Profile) -> CycleEstimate:
    """Estimate the cycles of a profile's steps from their instructions."""
    rates = loop_rates(ready.image, [call.function for call in ready.library.calls])
    steps = []
    for step, call in zip(profile.steps, ready.library.calls, strict=True):
        found = StepEstimate(step.number, step.function, step.count)
        if rate := rates.get(call.function):
            cycles = round(step.count * rate.cycles_per_instruction)
            found = StepEstimate(
                step.number,
                step.function,
                step.count,
                rate.function.removeprefix(f"{profile.model}_"),
                round(rate.cycles_per_instruction, 3),
                cycles,
            )
        steps.append(found)
    return CycleEstimate(
        ready.image.board.cpu_row.core,
        f"llvm-mca {llvm_version()}",
        LEAVES_OUT,
        sum(step.estimated_cycles or 0 for step in steps),
        sum(step.instructions for step in steps if step.estimated_cycles is None),
        tuple(steps),
    )


def print_estimate(estimate: CycleEstimate) -> None:
    """Print it, and that it is one."""
    OUT.print(f"ESTIMATE, nothing that was counted: cycles of {estimate.core}, by {estimate.estimated_by}")
    table = Table("step", "operator", "hot loop in", box=None)
    table.add_column("cycles per instruction", justify="right")
    table.add_column("estimated cycles", justify="right")
    for step in estimate.steps:
        rate = "" if step.cycles_per_instruction is None else f"{step.cycles_per_instruction:.2f}"
        cycles = "" if step.estimated_cycles is None else f"{step.estimated_cycles:,}"
        table.add_row(str(step.number), step.operator, step.loop_in or "none known", rate, cycles)
    table.add_row("", "all", "", "", f"{estimate.estimated_cycles:,}")
    OUT.print(table)
    if estimate.instructions_without_estimate:
        left = f"{estimate.instructions_without_estimate:,}"
        OUT.print(f"not in it: steps of {left} instructions without a loop that LLVM reads")
    OUT.print(f"it leaves out: {estimate.leaves_out}")
