# SPDX-License-Identifier: Apache-2.0
"""Targets of a library: the CPU that chooses kernels, and the memory that stores weights."""

from dataclasses import asdict, dataclass

from utvm.errors import DoesNotFitError


@dataclass(frozen=True)
class Target:
    """A CPU, as kernels and schedules see it; by default any with a C99 compiler. Results are the same anywhere.

    Attributes:
        extensions: what kernels may use beyond plain C, as toolchain files name it (``dsp``); sorted.
        row: the toolchain's file and its row of the CPU, ``arm-none-eabi/cortex-m7-fpv5-sp``.
        tuned: pairs of a layer's key and the best name of a kernel or trace of a schedule.
        unchecked: indices that come from inputs are not checked: one out of range reads or writes elsewhere.
    """

    core: str = ""
    extensions: tuple[str, ...] = ()
    row: str = ""
    tuned: tuple[tuple[str, str], ...] = ()
    unchecked: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "extensions", tuple(sorted(set(self.extensions))))
        object.__setattr__(self, "tuned", tuple(sorted((layer, choice) for layer, choice in self.tuned)))

    def choice(self, layer: str) -> str:
        """The choice that was measured to be best for a layer; empty where none was."""
        return dict(self.tuned).get(layer, "")

    @property
    def fields(self) -> dict[str, object]:
        """Fields for packages and reports; tuning and indices only where they differ from the default."""
        return {name: value for name, value in asdict(self).items() if name not in ("tuned", "unchecked") or value}

    @property
    def label(self) -> str:
        name = self.core or "any CPU"
        extended = f"{name} with {', '.join(self.extensions)}" if self.extensions else name
        return f"{extended}, indices unchecked" if self.unchecked else extended


ANY = Target()  # Any CPU with a C99 compiler.


@dataclass(frozen=True)
class Storage:
    """Where weights are stored.

    Attributes:
        hint: what to do where it is too small.
    """

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
