# SPDX-License-Identifier: Apache-2.0
"""The records that ``board.yaml`` is read into."""

import itertools
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from utvm import runtime
from utvm.base.storage.config import Record
from utvm.boards.parts import (
    NOTHING_VIRTUAL,
    Address,
    ConsolePart,
    Kind,
    Lack,
    Layout,
    Logic,
    MemoryRegion,
    Physical,
    Port,
    ProbeMatch,
    SiliconPart,
    Start,
    Timeouts,
    Virtual,
    VirtualModel,
)
from utvm.errors import ConfigError
from utvm.toolchain.compiler import Cpu, Toolchain
from utvm.virtual.spec import JtagSpec, MachineSpec, RegionSpec

if TYPE_CHECKING:
    from utvm.compiler.target import Target

_SMALLEST_STACK = 512
DRIVER = "driver"
"""The setting that every board has: the one way by which it is to be reached."""


_OF_A_CHIP = ("interrupts", "memory", "layout")
_NOT_OF_A_PROCESS = (
    *_OF_A_CHIP,
    "console",
    "port",
    "cycle_counter",
    "counter_hz",
    "start",
    "physical",
    "virtual",
    "settings",
    "silicon",
    "logic",
)


class Board(Record):
    """A target machine as its folder describes it: a chip on a circuit board, or a process that stands in for one.

    A part that it has not is absent: a process has no memory map, no console and no debug port. What can be done
    with it is asked of what it is reached by: see :mod:`utvm.drivers`.

    ``cpu`` is a row of its toolchain's file; ``clock_hz`` is what its cycle counter counts in a second: for a chip
    the core clock that its port sets up. ``interrupts`` is the number of lines of its interrupt controller.
    ``cycle_counter`` says who counts: the architecture's own unit, Cortex-M's SysTick, its port, or nobody;
    ``counter_hz`` is the ticks of such a timer in a second, where they are not ``clock_hz``. ``port`` is what it
    has in place of a ``port.c``; without either it has the one that does nothing. ``hole`` is an address where
    nothing is, which suites reach for. ``accelerator`` is the one that it has, by name, with what that needs to
    know; ``logic`` is what it may be programmed into. ``ways`` holds in the same way what further ways to reach it
    need; each reads its own part. ``silicon`` says of each part that has met a chip which one that was, and in
    which run.
    ``choices`` are the settings that its file offers, each with its values; ``settings`` says what was chosen.
    """

    kind: Literal["chip", "process"] = "chip"
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
    toolchain: str
    cpu: str
    clock_hz: Annotated[int, Field(gt=0, lt=2**32)]
    timeouts: Timeouts = Timeouts()
    interrupts: Annotated[int, Field(ge=0, le=1024)] = 0
    memory: tuple[MemoryRegion, ...] = ()
    roles: Layout | None = Field(None, alias="layout")
    line: ConsolePart | None = Field(None, alias="console")
    cycle_counter: Literal["architecture", "systick", "port", "none"] = "architecture"
    counter_hz: Annotated[int, Field(gt=0, lt=2**32)] | None = None
    port: Port | None = None
    hole: Address = 0xF000_0000
    start: Start = Start()
    physical: Physical | None = None
    virtual: Virtual = NOTHING_VIRTUAL
    accelerator: dict[str, dict[str, Any]] = Field({}, max_length=1)
    logic: Logic | None = None
    ways: dict[str, dict[str, Any]] = Field({})
    silicon: dict[SiliconPart, Annotated[str, Field(min_length=1)]] = Field({})
    directory: Path = Field(exclude=True)
    choices: dict[str, tuple[str, ...]] = Field({}, exclude=True)
    settings: dict[str, str] = Field({}, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _has_the_parts_of_its_kind(cls, content: Any) -> Any:
        # One problem a key, as of any other key that is missing or not known.
        if content.get("kind") == "process":
            problems = {key: "Extra inputs are not permitted" for key in _NOT_OF_A_PROCESS if content.get(key)}
        else:
            problems = {key: "Field required" for key in _OF_A_CHIP if key not in content}
            if not any(content.get(key) is not None for key in ("physical", "virtual", "ways")):
                problems["virtual"] = "Field required"
        if problems:
            raise ValueError("; ".join(f"{key}: {said}" for key, said in problems.items()))
        return content

    @property
    def full_name(self) -> str:
        """What it is called on a command line and in reports: its name with what was chosen."""
        chosen = ",".join(f"{name}={value}" for name, value in self.settings.items())
        return f"{self.name}:{chosen}" if chosen else self.name

    @property
    def programmable(self) -> Logic:
        """Its programmable logic."""
        if self.logic is None:
            raise ConfigError(
                f"{self.full_name} has no programmable logic", "name another board (./inv board.list)"
            )
        return self.logic

    @property
    def compiler(self) -> Toolchain:
        """Its cross compiler, with the rows of its folder."""
        return Toolchain(self.toolchain, self.directory)

    @property
    def cpu_row(self) -> Cpu:
        """What its toolchain's file says of its CPU."""
        return self.compiler.cpu(self.cpu)

    @property
    def architecture(self) -> str:
        """The runtime's folder for its CPU; raises as :attr:`cpu_row`."""
        return self.cpu_row.architecture

    @property
    def target(self) -> "Target":
        """What models are compiled for; raises as :attr:`cpu_row`."""
        from utvm.compiler.target import Target  # Whoever lists boards compiles nothing.

        row = self.cpu_row
        return Target(row.core, tuple(row.extensions), f"{self.toolchain}/{self.cpu}")

    @property
    def layout(self) -> Layout:
        """Which region holds what."""
        if self.roles is None:
            raise ConfigError(
                f"{self.name} is a process on this computer: it has no debug port, no probe and no memory map",
                "./inv hil, model.run, model.eval, model.profile and board.serve take it; for this, name another "
                "board (./inv board.list)",
            )
        return self.roles

    @property
    def console(self) -> ConsolePart:
        """The serial line on which it talks."""
        if self.line is None:
            raise ConfigError(f"{self.name} has no serial line", "name another board (./inv board.list)")
        return self.line

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What its own parts say that there is of it."""
        parts: dict[Kind, bool] = {
            "virtual": self.virtual != NOTHING_VIRTUAL,
            "physical": self.physical is not None,
        }
        return tuple(kind for kind, there in parts.items() if there)

    def able(self, lacks: frozenset[Lack], program: Literal["OpenOCD", "pyOCD"] | None) -> frozenset[str]:
        """Return what suites may need and a board with a debug port has.

        Args:
            lacks: what it has not, reached in that way.
            program: what drives its probe, which programs flash, and reads and writes in every width.
        """
        found = {"debug port", *get_args(Lack)} - lacks
        if self.line is None:
            found.discard("console")
        if self.port is None and not (self.directory / "port.c").is_file():
            found.discard("reset cause")  # the port that does nothing does not look
        if self.cycle_counter == "none":
            found.discard("counter")
        found |= {f"trap: {mistake}" for mistake in self.cpu_row.traps}
        found |= {f"accelerator {name}" for name in self.accelerator}
        if program == "OpenOCD":
            found.add(program)
        if program:
            found |= {"access widths", "write errors"}
            if any(region.kind == "flash" for region in self.memory):
                found.add("flash")
        return frozenset(found)

    def capabilities_of(self, kind: Kind, probe: ProbeMatch | None = None) -> frozenset[str]:
        """Return what suites may need and the physical or the virtual board has, with one of its probes on USB."""
        if kind not in self.kinds:
            return frozenset()
        part = self.physical if kind == "physical" else self.virtual.jtag or self.virtual
        assert part
        own = part.lacking if isinstance(part, Virtual) else part.lacks
        lacks = own | (probe.lacks if probe else frozenset())
        if part is self.virtual and self.virtual.model is None:
            return self.able(lacks, None)
        return self.able(lacks, "pyOCD" if self.by_pyocd else "OpenOCD")

    @property
    def capabilities(self) -> frozenset[str]:
        """What at least one of the two has."""
        return frozenset().union(*(self.capabilities_of(kind) for kind in self.kinds))

    @property
    def by_openocd(self) -> bool:
        """Whether OpenOCD drives what can be plugged in, with scripts of the folder."""
        return self.physical is not None and self.physical.driver == "openocd"

    @property
    def by_pyocd(self) -> bool:
        """Whether pyOCD drives it: it always does, or this time is to."""
        always = self.physical is not None and self.physical.driver == "pyocd"
        return always or self.settings.get(DRIVER) == "pyocd"

    @property
    def probes(self) -> tuple[ProbeMatch, ...]:
        """The probes that a physical one may be plugged in with."""
        return self.physical.probes if self.physical else ()

    @property
    def virtual_probes(self) -> tuple[ProbeMatch, ...]:
        """The probes that the virtual one may be on USB with."""
        return self.virtual.model.usb_probes if self.virtual.model else ()

    @model_validator(mode="after")
    def _memory_is_a_map(self) -> "Board":
        names = [region.name for region in self.memory]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"memory has two regions named {name}")
        roles = self.roles.regions if self.roles else ()
        for name in (*roles, *(region.alias_of for region in self.memory if region.alias_of)):
            if name not in names:
                raise ValueError(f"layout or alias_of names {name!r}; memory regions are {', '.join(names)}")
        ordered = sorted(self.memory, key=lambda region: region.address)
        for lower, upper in itertools.pairwise(ordered):
            if lower.end > upper.address:
                raise ValueError(f"memory regions {lower.name} and {upper.name} overlap")
        for number, region in enumerate(ordered):
            before = ordered[number - 1] if number else region
            found = (before.name, before.end, before.kind, before.executable, region.kind)
            wanted = (region.continues, region.address, "ram", region.executable, "ram")
            if region.continues and found != wanted:
                raise ValueError(f"{region.name} continues no RAM of its kind named {region.continues}")
        return self

    @model_validator(mode="after")
    def _layout_can_work(self) -> "Board":
        if self.roles is None:
            return self
        for name, kinds in zip(self.layout.regions, (("flash", "ram"), ("ram",), ("ram",)), strict=True):
            if self.region(name).kind not in kinds:
                raise ValueError(f"layout: {name} is {self.region(name).kind}; it must be {' or '.join(kinds)}")
        stack, size = self.region(self.layout.stack), self.layout.stack_size
        if size % 8 or not _SMALLEST_STACK <= size <= stack.size:
            raise ValueError(f"layout.stack_size is not a multiple of 8 from {_SMALLEST_STACK} to {stack.size}")
        if stack.name == self.layout.data:
            raise ValueError("layout.stack: an overflow must leave memory, but data lies in its region too")
        return self

    @model_validator(mode="after")
    def _console_has_lines(self) -> "Board":
        for irq in self.line.irqs if self.line else ():
            if irq >= self.interrupts:
                raise ValueError(f"console: irq {irq} is no line; there are {self.interrupts}")
        return self

    @model_validator(mode="after")
    def _counter_tells_instructions(self) -> "Board":
        emulator = self.virtual.emulator
        if emulator and self.counter_hz:
            ticks = Fraction(self.counter_hz << emulator.icount_shift, 10**9)
            if ticks <= 2 and ticks.denominator != 1:
                raise ValueError(
                    f"counter_hz: an instruction takes {float(ticks):g} of its ticks, and cannot be counted so: "
                    "take a larger virtual.emulator.icount_shift (docs/porting.md, step 6)"
                )
        return self

    def region(self, name: str) -> MemoryRegion:
        """Return the memory region of that name."""
        for region in self.memory:
            if region.name == name:
                return region
        raise KeyError(name)

    @property
    def is_guarded(self) -> bool:
        """Whether the core itself must stop a stack that overflows: below it is memory, or what answers."""
        stack = self.region(self.layout.stack)
        answers = any("bus errors" in part.lacks for part in (self.physical, self.virtual) if part)
        return answers or any(region.end == stack.address for region in self.memory)

    @property
    def guards_stack(self) -> bool:
        """Whether start-up code lays a guard below the stack, by memory protection; raises as :attr:`cpu_row`."""
        return self.is_guarded and self.cpu_row.stack_guard == "mpu"

    @property
    def counter_ratio(self) -> Fraction:
        """Counts that a tick of its counter is."""
        return Fraction(self.clock_hz, self.counter_hz or self.clock_hz)

    @property
    def port_source(self) -> Path:
        """Its C port: its own, one that boards share, or the one that does nothing."""
        own = self.directory / "port.c"
        if own.is_file() and self.port is None:
            return own
        name = self.port.name if self.port else "plain"
        shared = None if own.is_file() else runtime.shared(self.architecture, "ports", name)
        if shared is None:
            said = "the folder has a port.c too" if own.is_file() else f"there is no port {name!r}"
            raise ConfigError(
                f"{self.directory / 'board.yaml'}: port: {said}",
                f"ports of {self.architecture}: {', '.join(runtime.shared_names(self.architecture, 'ports'))}",
            )
        given = self.port.numbers if self.port else {}
        for number, meaning in runtime.PORT_NEEDS.get(self.architecture, {}).items():
            if not given.get(number):
                raise ConfigError(
                    f"{self.directory / 'board.yaml'}: port: numbers has no {number}: {meaning}",
                    f"for instance port: {{name: {name}, numbers: {{{number}: ...}}}}; docs/porting.md, step 4",
                )
        return shared

    @property
    def openocd_config(self) -> Path:
        """The OpenOCD script of a board that OpenOCD drives."""
        return self.directory / "openocd.cfg"

    @property
    def openocd_configs(self) -> tuple[Path, ...]:
        """That, and what OpenOCD reads for other probes."""
        named = {probe.openocd for probe in (*self.probes, *self.virtual_probes)}
        if self.virtual.jtag:
            named.add(self.virtual.jtag.openocd)
        return (self.openocd_config, *sorted({self.directory / name for name in named} - {self.openocd_config}))

    @model_validator(mode="after")
    def _parts_fit_together(self) -> "Board":
        model = self.virtual.model
        if model and not self.physical:
            raise ValueError("virtual.model stands in for a board that can be plugged in: physical is missing")
        if model and self.by_openocd and not model.probe:
            raise ValueError("virtual.model.probe: OpenOCD, which drives it, is to be told how to find it")
        if self.physical and self.start.by == "vectors" and self.region(self.layout.code).kind == "ram":
            raise ValueError(
                "layout.code is ram: a core finds no start there by itself, so start.by must be entry"
            )
        if self.start.by == "vectors" and self.start != Start():
            raise ValueError("start: reset and prepare are for a start by entry")
        for peripheral in model.peripherals if model else ():
            for irq in (*peripheral.irqs, *(() if peripheral.irq is None else (peripheral.irq,))):
                if not 0 <= irq < self.interrupts:
                    raise ValueError(f"virtual.model.peripherals: irq {irq} of {peripheral.model} is no line")
            for region in self.memory:
                if region.kind != "rom" and region.address <= peripheral.address < region.end:
                    raise ValueError(f"virtual.model.peripherals: {peripheral.model} lies in region {region.name}")
        return self

    @property
    def model(self) -> VirtualModel:
        """The software model of ours that is the virtual board."""
        if self.virtual.model is None:
            raise RuntimeError(f"{self.name} has no software model")
        return self.virtual.model

    def machine_spec(self, *, waits: bool = False) -> MachineSpec:
        """Return the numbers that its software model is built from; raises as :attr:`model`.

        Args:
            waits: whether it counts how long the core waits for flash, too.
        """
        return MachineSpec(
            name=self.name,
            cpu=self.model.cpu,
            interrupts=self.interrupts,
            reset_vector_base=self.region(self.layout.code).address,
            regions=self._region_specs,
            peripherals=self.model.peripherals,
            wait_states=self.model.wait_states if waits else None,
            access_ports=self.model.access_ports,
        )

    @property
    def _region_specs(self) -> tuple[RegionSpec, ...]:
        return tuple(
            RegionSpec(
                name=region.name,
                address=region.address,
                size=region.size,
                kind=region.kind,
                sectors=region.sectors,
                alias_of=region.alias_of,
            )
            for region in self.memory
        )

    def jtag_spec(self) -> JtagSpec:
        """Return the numbers that its model behind JTAG pins is built from."""
        if self.virtual.jtag is None:
            raise RuntimeError(f"{self.name} has no model behind JTAG")
        return JtagSpec(
            name=self.name,
            cpu=self.cpu,
            idcode=self.virtual.jtag.idcode,
            taps=self.virtual.jtag.taps,
            start=self.region(self.layout.code).address,
            regions=self._region_specs,
            peripherals=self.virtual.jtag.peripherals,
        )
