"""The records that ``board.yaml`` is read into."""

import itertools
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from utvm.config import Record
from utvm.console import FlowControl
from utvm.toolchain import Toolchain
from utvm.virtual.spec import MachineSpec, Peripheral, Region

_SMALLEST_STACK = 512
_UNITS = {"K": 1024, "M": 1024 * 1024}


def _size(value: object) -> object:
    """Turn ``64K`` or ``1M`` into bytes; leave the rest to the validator."""
    if isinstance(value, str) and value[-1:] in _UNITS and value[:-1].isdigit():
        return int(value[:-1]) * _UNITS[value[-1]]
    if isinstance(value, str) and not value.isdigit():
        raise ValueError(f"{value!r} is no size: give bytes, or a number with K or M, like 64K")
    return value


Bytes = Annotated[int, BeforeValidator(_size), Field(gt=0)]
Address = Annotated[int, Field(ge=0, lt=2**32)]


class MemoryRegion(Record):
    """A region of the board's memory map, as its reference manual gives it.

    ``sectors`` are the erase units of a flash region in bytes, in address order. ``alias_of`` names the flash
    region that this one mirrors on another bus.
    """

    name: str
    address: Address
    size: Bytes
    kind: Literal["ram", "flash", "rom"]
    sectors: tuple[Bytes, ...] = ()
    alias_of: str | None = None

    @property
    def end(self) -> int:
        """First address after the region."""
        return self.address + self.size

    @model_validator(mode="after")
    def _sectors_fill_the_region(self) -> "MemoryRegion":
        if self.sectors and sum(self.sectors) != self.size:
            raise ValueError(f"sectors of {self.name} add up to {sum(self.sectors)} bytes, not {self.size}")
        return self


class Layout(Record):
    """Which region holds what, and the size of the stack in bytes."""

    code: str
    data: str
    stack: str
    stack_size: Bytes

    @property
    def regions(self) -> tuple[str, str, str]:
        """The regions in the order of the roles: code, data, stack."""
        return (self.code, self.data, self.stack)


class ProbeMatch(Record):
    """A debug probe that the board carries or is used with: what kind, and how USB knows it."""

    kind: str
    vendor: Annotated[int, Field(ge=0, lt=2**16)]
    product: Annotated[int, Field(ge=0, lt=2**16)]


class Identity(Record):
    """A word in the chip that tells which one it is: probes of one kind sit on boards of many."""

    register_name: str
    address: Address
    mask: Annotated[int, Field(gt=0, lt=2**32)]
    value: Annotated[int, Field(ge=0, lt=2**32)]


class Console(Record):
    """The serial line on which the board talks; ``irqs`` are the interrupt lines that its port's handler takes.

    ``flow_control`` is what its port does and this computer is to do with it.
    """

    name: str
    baud: int
    irqs: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    flow_control: FlowControl = "none"


class Timeouts(Record):
    """How long RPC waits for the board, in seconds.

    ``start`` is until it has come up after a reset and begun a session: a virtual board on a busy computer takes
    long. ``resend`` is until a request is sent again, the second time after twice as long, and so on.
    """

    start: Annotated[float, Field(gt=0)] = 30.0
    resend: Annotated[float, Field(gt=0)] = 1.0


class OpenOcdCommands(Record):
    """OpenOCD commands that pick one probe; ``{serial}`` and ``{port}`` are filled in."""

    select_serial: str
    virtual_probe: str

    @model_validator(mode="after")
    def _can_be_filled_in(self) -> "OpenOcdCommands":
        try:
            self.select_serial.format(serial="")
            self.virtual_probe.format(port=0)
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(f"only {{serial}} and {{port}} are filled in, not {error}") from error
        return self


class VirtualModel(Record):
    """What a software model of ours needs beyond the memory map: its CPU model and peripherals."""

    cpu: Literal["cortex-m7"]
    serial: str
    peripherals: tuple[Peripheral, ...]


class Emulator(Record):
    """The QEMU that is the board.

    An instruction takes ``2 ** icount_shift`` nanoseconds of its clock (QEMU's ``-icount``). ``options`` are
    further words of its command line; ``{code}``, the address of the code, is filled in.
    """

    kind: Literal["qemu"]
    program: Annotated[str, Field(min_length=1)]
    machine: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    # QEMU 7.2 takes no more.
    icount_shift: Annotated[int, Field(ge=0, le=10)]
    options: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _can_be_filled_in(self) -> "Emulator":
        try:
            self.options_for(0)
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(f"options: only {{code}} is filled in, not {error}") from error
        return self

    def options_for(self, code: int) -> tuple[str, ...]:
        """Return the further words for a board whose code is at an address."""
        return tuple(option.format(code=code) for option in self.options)


class Emulated(Record):
    """A virtual board that is an emulator of others, with a debug port of its own."""

    emulator: Emulator


class AnyBoard(Record):
    """What is known of every board.

    ``cpu`` is a row of its toolchain's file; ``clock_hz`` is what its cycle counter counts in a second.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str
    toolchain: str
    cpu: str
    clock_hz: Annotated[int, Field(gt=0)]
    timeouts: Timeouts = Timeouts()
    directory: Path = Field(exclude=True)

    @property
    def capabilities(self) -> frozenset[str]:
        """What suites may need of a board and not every board has."""
        return frozenset()

    @property
    def architecture(self) -> str:
        """The runtime's folder for its CPU; raises as :attr:`features`."""
        return Toolchain(self.toolchain).cpu(self.cpu).architecture

    @property
    def features(self) -> frozenset[str]:
        """What the compiler may use beyond plain C; see :class:`utvm.toolchain.Cpu`.

        Raises:
            ConfigError: the toolchain's file is missing or has no such CPU.
        """
        return frozenset(Toolchain(self.toolchain).cpu(self.cpu).features)


class ProcessBoard(AnyBoard):
    """A process on this computer that stands in for a board: the same runtime, without a debug port."""

    kind: Literal["process"]


class Board(AnyBoard):
    """A chip on a circuit board, with a debug port: an :class:`OpenOcdBoard` or a :class:`QemuBoard`.

    ``interrupts`` is the number of lines of its interrupt controller; ``clock_hz`` is the core clock that its
    port sets up, in hertz. ``cycle_counter`` says who counts: the architecture's own unit, or the board's port.
    ``lacks`` names what suites ask for and the board has not.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("flash",)
    """The kinds of memory that images may be in."""

    kind: Literal["chip"] = "chip"
    interrupts: Annotated[int, Field(ge=0)]
    memory: Annotated[tuple[MemoryRegion, ...], Field(min_length=1)]
    layout: Layout
    console: Console
    cycle_counter: Literal["architecture", "port"] = "architecture"
    lacks: frozenset[Literal["reset cause", "watchpoints"]] = frozenset()

    @property
    def capabilities(self) -> frozenset[str]:
        """What suites may need; what drives the debug port adds its own."""
        return frozenset({"debug port", "reset cause", "watchpoints"}) - self.lacks

    @property
    def virtual_serial(self) -> str:
        """The serial number of the virtual board, or an empty string where nothing has one."""
        return ""

    @model_validator(mode="after")
    def _memory_is_a_map(self) -> "Board":
        names = [region.name for region in self.memory]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"memory has two regions named {name}")
        for name in (*self.layout.regions, *(region.alias_of for region in self.memory if region.alias_of)):
            if name not in names:
                raise ValueError(f"layout or alias_of names {name!r}; memory regions are {', '.join(names)}")
        ordered = sorted(self.memory, key=lambda region: region.address)
        for lower, upper in itertools.pairwise(ordered):
            if lower.end > upper.address:
                raise ValueError(f"memory regions {lower.name} and {upper.name} overlap")
        return self

    @model_validator(mode="after")
    def _layout_can_work(self) -> "Board":
        for name, kinds in zip(self.layout.regions, (self.code_kinds, ("ram",), ("ram",)), strict=True):
            if self.region(name).kind not in kinds:
                raise ValueError(f"layout: {name} is {self.region(name).kind}; it must be {' or '.join(kinds)}")
        stack, size = self.region(self.layout.stack), self.layout.stack_size
        if size % 8 or not _SMALLEST_STACK <= size <= stack.size:
            raise ValueError(f"layout.stack_size is not a multiple of 8 from {_SMALLEST_STACK} to {stack.size}")
        if stack.name == self.layout.data or any(region.end == stack.address for region in self.memory):
            raise ValueError(f"layout.stack: an overflow must leave memory, but something lies below {stack.name}")
        return self

    @model_validator(mode="after")
    def _console_has_lines(self) -> "Board":
        for irq in self.console.irqs:
            if irq >= self.interrupts:
                raise ValueError(f"console: irq {irq} is no line; there are {self.interrupts}")
        return self

    def region(self, name: str) -> MemoryRegion:
        """Return the memory region of that name.

        Raises:
            KeyError: there is none.
        """
        for region in self.memory:
            if region.name == name:
                return region
        raise KeyError(name)

    @property
    def port_source(self) -> Path:
        """The board's C port."""
        return self.directory / "port.c"


class OpenOcdBoard(Board):
    """A board that OpenOCD drives through a probe: one that is plugged in, or our software model of it."""

    identity: Identity
    probes: tuple[ProbeMatch, ...]
    openocd: OpenOcdCommands
    virtual: VirtualModel

    @model_validator(mode="after")
    def _peripherals_are_outside_memory(self) -> "OpenOcdBoard":
        for peripheral in self.virtual.peripherals:
            for irq in (*peripheral.irqs, *(() if peripheral.irq is None else (peripheral.irq,))):
                if not 0 <= irq < self.interrupts:
                    raise ValueError(f"virtual.peripherals: irq {irq} of {peripheral.model} is no line")
            for region in self.memory:
                if region.kind != "rom" and region.address <= peripheral.address < region.end:
                    raise ValueError(f"virtual.peripherals: {peripheral.model} lies in region {region.name}")
        return self

    @property
    def capabilities(self) -> frozenset[str]:
        """OpenOCD programs flash, and reads and writes in every width, while the core runs too."""
        return super().capabilities | {"OpenOCD", "flash"}

    @property
    def virtual_serial(self) -> str:
        """The serial number of the virtual board's probe."""
        return self.virtual.serial

    @property
    def openocd_config(self) -> Path:
        """The board's OpenOCD script."""
        return self.directory / "openocd.cfg"

    def machine_spec(self) -> MachineSpec:
        """Return the numbers that the virtual board is built from."""
        return MachineSpec(
            name=self.name,
            cpu=self.virtual.cpu,
            interrupts=self.interrupts,
            reset_vector_base=self.region(self.layout.code).address,
            regions=tuple(
                Region(
                    name=region.name,
                    address=region.address,
                    size=region.size,
                    kind=region.kind,
                    sectors=region.sectors,
                    alias_of=region.alias_of,
                )
                for region in self.memory
            ),
            peripherals=self.virtual.peripherals,
        )


class QemuBoard(Board):
    """A board that exists emulated by QEMU alone, whose GDB stub is its debug port.

    The stub writes memory of every kind, so that code may be in RAM: QEMU keeps it through a reset.
    """

    code_kinds: ClassVar[tuple[str, ...]] = ("flash", "ram")
    virtual: Emulated
