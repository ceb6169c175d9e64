# SPDX-License-Identifier: Apache-2.0
"""The record of a board, read from ``board.yaml``."""

import itertools
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from utvm import errors, runtime
from utvm.base.storage.config import Record
from utvm.boards import parts
from utvm.toolchain.compiler import Cpu, Toolchain
from utvm.virtual.spec import TRIALS, WAITS_REGISTER, JtagSpec, MachineSpec, RegionSpec, TimingSpec

if TYPE_CHECKING:
    from utvm.compiler.target import Target

_SMALLEST_STACK = 512
DRIVER = "driver"
"""Setting of every board: the driver."""
CYCLES = "cycles"
"""Setting of every board: if it is ``model``, the virtual board counts modelled cycles."""

_CHIP_KEYS = ("interrupts", "memory", "layout")
_NOT_PROCESS_KEYS: tuple[str, ...] = (*_CHIP_KEYS, "console", "port", "pinout", "cycle_counter", "counter_hz", "start")
_NOT_PROCESS_KEYS += ("physical", "virtual", "settings", "silicon", "logic")


class Board(Record):
    """A target machine: a chip on a circuit board, or a process that stands in for one.

    Missing parts are None: a process has no memory map, console or debug port. Its driver reports its
    capabilities: see :mod:`utvm.drivers`.

    Attributes:
        cpu: a row of the toolchain's file.
        clock_hz: frequency of the cycle counter; for a chip, the core clock that its port sets up.
        interrupts: number of lines of the interrupt controller.
        cycle_counter: ``architecture`` for the CPU's own unit, or SysTick, the port, or none.
        counter_hz: frequency of that counter, if not ``clock_hz``.
        secure: an Armv8-M core with the Security Extension, in whose Secure state code runs.
        port: a shared port instead of ``port.c``; without either, the one that does nothing.
        pinout: pins of the console, LEDs, buttons and connectors.
        hole: an unmapped address, for suites.
        accelerator, drivers: settings by name.
        silicon: chip and run that confirmed each part of the description.
        choices: settings that the file offers, with their values; ``settings`` are the chosen ones.
    """

    kind: Literal["chip", "process"] = "chip"
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
    toolchain: str
    cpu: str
    clock_hz: Annotated[int, Field(gt=0, lt=2**32)]
    timeouts: parts.Timeouts = parts.Timeouts()
    interrupts: Annotated[int, Field(ge=0, le=1024)] = 0
    memory: tuple[parts.MemoryRegion, ...] = ()
    roles: parts.Layout | None = Field(None, alias="layout")
    line: parts.ConsolePart | None = Field(None, alias="console")
    cycle_counter: Literal["architecture", "systick", "port", "none"] = "architecture"
    counter_hz: Annotated[int, Field(gt=0, lt=2**32)] | None = None
    secure: bool = False
    port: parts.Port | None = None
    pinout: parts.Pinout | None = None
    hole: parts.Address = 0xF000_0000
    start: parts.Start = parts.Start()
    physical: parts.Physical | None = None
    virtual: parts.Virtual = parts.NOTHING_VIRTUAL
    accelerator: dict[str, dict[str, Any]] = Field({}, max_length=1)
    logic: parts.Logic | None = None
    drivers: dict[str, dict[str, Any]] = Field({})
    silicon: dict[parts.SiliconPart, Annotated[str, Field(min_length=1)]] = Field({})
    directory: Path = Field(exclude=True)
    choices: dict[str, tuple[str, ...]] = Field({}, exclude=True)
    settings: dict[str, str] = Field({}, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, content: Any) -> Any:
        # One problem for each key, like pydantic's own.
        if content.get("kind") == "process":
            problems = {key: "Extra inputs are not permitted" for key in _NOT_PROCESS_KEYS if content.get(key)}
        else:
            problems = {key: "Field required" for key in _CHIP_KEYS if key not in content}
            if not any(content.get(key) is not None for key in ("physical", "virtual", "drivers")):
                problems["virtual"] = "Field required"
        if problems:
            raise ValueError("; ".join(f"{key}: {problem}" for key, problem in problems.items()))
        return content

    @property
    def full_name(self) -> str:
        """Name with settings, as on the command line: ``NAME:KEY=VALUE,...``."""
        settings = ",".join(f"{name}={value}" for name, value in self.settings.items())
        return f"{self.name}:{settings}" if settings else self.name

    @property
    def programmable(self) -> parts.Logic:
        if self.logic is None:
            raise errors.ConfigError(
                f"{self.full_name} has no programmable logic", "name another board (./inv board.list)"
            )
        return self.logic

    @property
    def compiler(self) -> Toolchain:
        """The cross compiler, with the rows of the board's folder."""
        return Toolchain(self.toolchain, self.directory)

    @property
    def cpu_row(self) -> Cpu:
        """The CPU's row in the toolchain's file."""
        return self.compiler.cpu(self.cpu)

    @property
    def architecture(self) -> str:
        return self.cpu_row.architecture

    @property
    def target(self) -> "Target":
        from utvm.compiler.target import Target  # Listing boards needs no compiler.

        row = self.cpu_row
        return Target(row.core, tuple(row.extensions), f"{self.toolchain}/{self.cpu}", ram_room=self._ram_room)

    @property
    def _ram_room(self) -> int:
        timing = self.timing or self.offered_timing
        if not timing or not timing.data.wait or self.region(self.layout.code).kind != "flash":
            return 0
        # The rest is for the runtime, which needs 16 KB with RPC, and for the application.
        return max(0, self.region(self.layout.data).size * 7 // 8 - 8192)

    @property
    def layout(self) -> parts.Layout:
        """The regions of code, data and stack."""
        if self.roles is None:
            raise errors.ConfigError(
                f"{self.name} is a process on this computer: it has no debug port, no probe and no memory map",
                "use it with ./inv hil, model.run, model.eval, model.profile and board.serve; here, choose "
                "another board (./inv board.list)",
            )
        return self.roles

    @property
    def console(self) -> parts.ConsolePart:
        if self.line is None:
            raise errors.ConfigError(f"{self.name} has no serial line", "choose another board (./inv board.list)")
        return self.line

    @property
    def kinds(self) -> tuple[parts.Kind, ...]:
        """Kinds described by the board's own parts."""
        virtual: tuple[parts.Kind, ...] = ("virtual",) if self.virtual != parts.NOTHING_VIRTUAL else ()
        return (*virtual, "physical") if self.physical is not None else virtual

    def capabilities_with(
        self, lacks: frozenset[parts.Lack], program: Literal["OpenOCD", "pyOCD"] | None
    ) -> frozenset[str]:
        """Return the capabilities of the board with a debug port, as suites require them.

        ``lacks`` are the missing ones; ``program`` drives the probe, programs flash and accesses memory in every
        width.
        """
        capabilities = {"debug port", *get_args(parts.Lack)} - lacks
        if self.line is None:
            capabilities.discard("console")
        if self.port is None and not (self.directory / "port.c").is_file():
            capabilities.discard("reset cause")
        if self.cycle_counter == "none":
            capabilities.discard("counter")
        capabilities |= {f"trap: {mistake}" for mistake in self.cpu_row.traps}
        capabilities |= {f"accelerator {name}" for name in self.accelerator}
        if program:
            capabilities |= {"access widths", "write errors"}
            capabilities |= {program} & {"OpenOCD"}
            capabilities |= {region.kind for region in self.memory} & {"flash"}
        return frozenset(capabilities)

    def capabilities_of(self, kind: parts.Kind, probe: parts.ProbeMatch | None = None) -> frozenset[str]:
        """Capabilities of the physical or the virtual board, with one of its probes."""
        if kind not in self.kinds:
            return frozenset()
        part = self.physical if kind == "physical" else self.virtual.jtag or self.virtual
        assert part
        lacks = part.lacking if isinstance(part, parts.Virtual) else part.lacks
        lacks |= probe.lacks if probe else frozenset()
        if part is self.virtual and self.virtual.model is None:
            return self.capabilities_with(lacks, None)
        capabilities = self.capabilities_with(lacks, "pyOCD" if self.by_pyocd else "OpenOCD")
        return capabilities | {"pins"} if part is self.virtual else capabilities

    @property
    def capabilities(self) -> frozenset[str]:
        """Capabilities of the physical or the virtual board."""
        return frozenset().union(*(self.capabilities_of(kind) for kind in self.kinds))

    @property
    def by_openocd(self) -> bool:
        """True if OpenOCD drives the physical board."""
        return self.physical is not None and self.physical.driver == "openocd"

    @property
    def by_pyocd(self) -> bool:
        """True if pyOCD drives the board, by default or by its settings."""
        always = self.physical is not None and self.physical.driver == "pyocd"
        return always or self.settings.get(DRIVER) == "pyocd"

    @property
    def probes(self) -> tuple[parts.ProbeMatch, ...]:
        """Probes of the physical board."""
        return self.physical.probes if self.physical else ()

    @property
    def virtual_probes(self) -> tuple[parts.ProbeMatch, ...]:
        """Probes of the virtual board on USB."""
        return self.virtual.model.usb_probes if self.virtual.model else ()

    @model_validator(mode="after")
    def _check_memory(self) -> "Board":
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
            actual = (before.name, before.end, before.kind, before.executable, region.kind)
            required = (region.continues, region.address, "ram", region.executable, "ram")
            if region.continues and actual != required:
                raise ValueError(f"{region.name} continues no RAM of its kind named {region.continues}")
        return self

    @model_validator(mode="after")
    def _check_layout(self) -> "Board":
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
    def _check_console(self) -> "Board":
        for irq in self.line.irqs if self.line else ():
            if irq >= self.interrupts:
                raise ValueError(f"console: irq {irq} is out of range; there are {self.interrupts} lines")
        return self

    @model_validator(mode="after")
    def _check_counter(self) -> "Board":
        emulator = self.virtual.emulator
        if emulator and self.counter_hz:
            ticks = Fraction(self.counter_hz << emulator.icount_shift, 10**9)
            if ticks <= 2 and ticks.denominator != 1:
                raise ValueError(
                    f"counter_hz: instructions of {float(ticks):g} ticks cannot be counted: increase "
                    "virtual.emulator.icount_shift (docs/porting.md, step 6)"
                )
        return self

    def region(self, name: str) -> parts.MemoryRegion:
        for region in self.memory:
            if region.name == name:
                return region
        raise KeyError(name)

    def uses_of(self, region: parts.MemoryRegion) -> str:
        """Describe a region's content: code, data, stack; or the region that it mirrors."""
        if region.alias_of:
            return f"mirrors {region.alias_of}"
        return ", ".join(use for use in ("code", "data", "stack") if getattr(self.layout, use) == region.name)

    @property
    def is_guarded(self) -> bool:
        """True if the core must detect stack overflows, since accesses below the stack do not fail."""
        stack = self.region(self.layout.stack)
        answers = any("bus errors" in part.lacks for part in (self.physical, self.virtual) if part)
        return answers or any(region.end == stack.address for region in self.memory)

    @property
    def guards_stack(self) -> bool:
        return self.is_guarded and self.cpu_row.stack_guard == "mpu"

    @property
    def counter_ratio(self) -> Fraction:
        """Cycles per tick of the counter."""
        return Fraction(self.clock_hz, self.counter_hz or self.clock_hz)

    @property
    def port_source(self) -> Path:
        """The C port: the board's own, a shared one, or the one that does nothing."""
        own = self.directory / "port.c"
        if own.is_file() and self.port is None:
            return own
        name = self.port.name if self.port else "plain"
        shared = None if own.is_file() else runtime.find_shared(self.architecture, "ports", name)
        if shared is None:
            problem = "the folder has a port.c too" if own.is_file() else f"there is no port {name!r}"
            raise errors.ConfigError(
                f"{self.directory / 'board.yaml'}: port: {problem}",
                f"ports of {self.architecture}: {', '.join(runtime.shared_names(self.architecture, 'ports'))}",
            )
        numbers = self.port.numbers if self.port else {}
        for number, meaning in runtime.PORT_NEEDS.get(self.architecture, {}).items():
            if not numbers.get(number):
                raise errors.ConfigError(
                    f"{self.directory / 'board.yaml'}: port: numbers has no {number}: {meaning}",
                    f"for instance port: {{name: {name}, numbers: {{{number}: ...}}}}; docs/porting.md, step 4",
                )
        return shared

    @property
    def openocd_config(self) -> Path:
        """The board's OpenOCD script."""
        return self.directory / "openocd.cfg"

    @property
    def openocd_configs(self) -> tuple[Path, ...]:
        """The board's OpenOCD script, and those for other probes."""
        names = {probe.openocd for probe in (*self.probes, *self.virtual_probes)}
        if self.virtual.jtag:
            names.add(self.virtual.jtag.openocd)
        return (self.openocd_config, *sorted({self.directory / name for name in names} - {self.openocd_config}))

    @model_validator(mode="after")
    def _check_parts(self) -> "Board":
        model = self.virtual.model
        if model and not self.physical:
            raise ValueError("virtual.model models a physical board: physical is missing")
        if model and self.by_openocd and not model.probe:
            raise ValueError("virtual.model.probe: OpenOCD needs the command that connects to the model")
        if self.physical and self.start.by == "vectors" and self.region(self.layout.code).kind == "ram":
            raise ValueError("layout.code is ram: a core cannot start there by itself, so start.by must be entry")
        if self.start.by == "vectors" and self.start != parts.Start():
            raise ValueError("start: reset and prepare need start.by: entry")
        for peripheral in model.peripherals if model else ():
            for irq in (*peripheral.irqs, *(() if peripheral.irq is None else (peripheral.irq,))):
                if not 0 <= irq < self.interrupts:
                    raise ValueError(f"virtual.model.peripherals: irq {irq} of {peripheral.model} is out of range")
            for region in self.memory:
                if region.kind != "rom" and region.address <= peripheral.address < region.end:
                    raise ValueError(f"virtual.model.peripherals: {peripheral.model} lies in region {region.name}")
        return self

    @property
    def model(self) -> parts.VirtualModel:
        """The software model of the virtual board."""
        if self.virtual.model is None:
            raise RuntimeError(f"{self.name} has no software model")
        return self.virtual.model

    @property
    def timing(self) -> TimingSpec | None:
        """The model of cycles, if its settings choose it."""
        timing = self.offered_timing if self.settings.get(CYCLES) == "model" else None
        trials = {name: value for name, value in self.settings.items() if name in TRIALS and name not in self.choices}
        return timing and timing.with_settings(trials)

    @property
    def offered_timing(self) -> TimingSpec | None:
        """The model of cycles, if its virtual board has one."""
        part = self.virtual.model or self.virtual.emulator
        return part.timing if part else None

    @property
    def selected_wait(self) -> int:
        """Address of the register that says what modelled cycles are counted."""
        return self.virtual.emulator.counter if self.virtual.emulator else WAITS_REGISTER

    def milliseconds(self, count: int | None, unit: str) -> float | None:
        """Time of a count: of a chip's cycles, or of modelled ones; None for any other unit."""
        clocks = {"cycles": self.clock_hz, "modelled cycles": self.timing.clock_hz if self.timing else 0}
        return 1000 * count / clocks[unit] if count and clocks.get(unit) else None

    def error_of(self, unit: str) -> int | None:
        """Error of a modelled time in percent; None for other units, or if it is not known."""
        return self.timing.error if self.timing and unit == "modelled cycles" else None

    def describe_time(self, count: int, unit: str) -> str:
        """Describe the time of a count, with its range if modelled; empty for units without a time."""
        ms = self.milliseconds(count, unit)
        if ms is None:
            return ""
        if unit == "cycles" or not self.timing:
            return f"{ms:.3f} ms at {self.clock_hz / 1e6:g} MHz"
        error = f"±{self.timing.error} %" if self.timing.error else "rough"
        return f"about {ms:.3g} ms at {self.timing.clock_hz / 1e6:g} MHz, modelled, {error} (docs/time.md)"

    def machine_spec(self) -> MachineSpec:
        return MachineSpec(
            name=self.name,
            cpu=self.model.cpu,
            interrupts=self.interrupts,
            reset_vector_base=self.region(self.layout.code).address,
            regions=self.region_specs,
            peripherals=self.model.peripherals,
            timing=self.timing,
            access_ports=self.model.access_ports,
            blocks=self.chip_map.read_text(encoding="utf-8") if self.chip_map.is_file() else "",
        )

    @property
    def chip_map(self) -> Path:
        """The file with the chip's peripherals, which need not exist (:mod:`utvm.virtual.blocks`)."""
        return self.directory / "peripherals.txt"

    @property
    def region_specs(self) -> tuple[RegionSpec, ...]:
        names = ("name", "address", "size", "kind", "sectors", "alias_of")
        return tuple(RegionSpec(**{name: getattr(region, name) for name in names}) for region in self.memory)

    def jtag_spec(self) -> JtagSpec:
        """Specification of the model behind JTAG pins."""
        if self.virtual.jtag is None:
            raise RuntimeError(f"{self.name} has no model behind JTAG")
        return JtagSpec(
            name=self.name,
            cpu=self.cpu,
            idcode=self.virtual.jtag.idcode,
            taps=self.virtual.jtag.taps,
            start=self.region(self.layout.code).address,
            regions=self.region_specs,
            peripherals=self.virtual.jtag.peripherals,
        )
