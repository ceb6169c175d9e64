# SPDX-License-Identifier: Apache-2.0
"""Targets of a library: a CPU for the choice of kernels, and storage for the weights."""

from dataclasses import asdict, dataclass
from typing import Literal

from utvm.errors import DoesNotFitError

Goal = Literal["balance", "speed", "flash", "ram"]


@dataclass(frozen=True)
class Target:
    """A CPU for kernels and schedules, by default any with a C99 compiler; results are the same anywhere.

    Attributes:
        extensions: beyond plain C, sorted, by their names in toolchain files (``dsp``).
        row: toolchain file and row of the CPU, ``arm-none-eabi/cortex-m7-fpv5-sp``.
        tuned: pairs of a layer's key and its best kernel name or schedule trace.
        goal: what kernels save at the expense of the others; by default a balance of the three.
        unchecked: do not check indices from inputs: one out of range accesses other memory.
        weights_in_ram: bytes of weights that start-up code may copy to RAM: those with the most products a byte;
            None: as many as the room has, if the goal is speed. A library's target has the bytes that are copied.
        ram_room: bytes of RAM for working memory and copied weights; 0 if the board's flash does not wait.
        input_rows: the application hands over the input, an image, by rows; it is never whole in memory.
    """

    core: str = ""
    extensions: tuple[str, ...] = ()
    row: str = ""
    tuned: tuple[tuple[str, str], ...] = ()
    unchecked: bool = False
    goal: Goal = "balance"
    weights_in_ram: int | None = None
    ram_room: int = 0
    input_rows: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "extensions", tuple(sorted(set(self.extensions))))
        object.__setattr__(self, "tuned", tuple(sorted((layer, choice) for layer, choice in self.tuned)))

    def choice(self, layer: str) -> str:
        """Return the tuned choice for a layer; empty if there is none."""
        return dict(self.tuned).get(layer, "")

    @property
    def fields(self) -> dict[str, object]:
        """Return fields for packages and reports; the rest only if not default."""
        always = ("core", "extensions", "row")
        fields = {name: value for name, value in asdict(self).items() if name in always or value}
        return {name: value for name, value in fields.items() if (name, value) != ("goal", "balance")}

    def weights_room(self, working_bytes: int) -> int:
        """Return the bytes of weights that start-up code may copy to RAM; as much as the working memory stays free."""
        if self.weights_in_ram is not None:
            return self.weights_in_ram
        return max(0, self.ram_room - 2 * working_bytes) if self.goal == "speed" else 0

    @property
    def label(self) -> str:
        name = self.core or "any CPU"
        extended = f"{name} with {', '.join(self.extensions)}" if self.extensions else name
        return f"{extended}, indices unchecked" if self.unchecked else extended


ANY = Target()  # Any CPU with a C99 compiler.


@dataclass(frozen=True)
class Storage:
    """Storage of the weights; ``hint`` is a remedy if it is too small."""

    name: str
    size_bytes: int
    hint: str

    def check(self, need: int) -> None:
        if need > self.size_bytes:
            raise DoesNotFitError(
                f"the weights do not fit: {self.name} has {self.size_bytes} bytes, the weights alone need {need} "
                f"({need - self.size_bytes} too many)",
                self.hint,
            )
