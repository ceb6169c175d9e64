# SPDX-License-Identifier: Apache-2.0
"""Records of a board's parts: memory, access to a physical one, and the virtual one."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from utvm.base.storage.config import Record
from utvm.virtual.spec import CoreName, Peripheral, TapSpec, TimingSpec

Kind = Literal["virtual", "physical", "process"]
"""Kinds of boards that a run may use."""
SiliconPart = Literal["probe", "memory", "flash", "debugging", "clock", "console", "faults", "models"]
"""Parts of a board's description that a run on silicon confirms; docs/bring-up.md lists the suites for each."""

_UNITS = {"K": 1024, "M": 1024 * 1024}


def _size(value: object) -> object:
    if isinstance(value, str) and value[-1:] in _UNITS and value[:-1].isdigit():
        return int(value[:-1]) * _UNITS[value[-1]]
    if isinstance(value, str) and not value.isdigit():
        raise ValueError(f"{value!r} is not a size: give bytes, or a number with K or M, like 64K")
    return value


Bytes = Annotated[int, BeforeValidator(_size), Field(gt=0)]
Address = Annotated[int, Field(ge=0, lt=2**32)]

FlowControl = Literal["none", "rts-cts"]


def _template_of(**values: str | int) -> AfterValidator:
    """Check that a command is a template of these values."""

    def check(command: str) -> str:
        try:
            command.format(**values)
        except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"only {{{', '.join(values)}}} is filled in, not {error}") from error
        return command

    return AfterValidator(check)


PortCommand = Annotated[str, _template_of(port=0)]


class MemoryRegion(Record):
    """A region of the memory map, as in the reference manual.

    Attributes:
        sectors: erase units of a flash region in bytes, in address order; a file may give one size for all.
        alias_of: the flash region that this one mirrors on another bus.
        continues: the RAM directly before this one on the same bus, so that an object may span both.
        executable: True if code can run there.
    """

    name: str
    address: Address
    size: Bytes
    kind: Literal["ram", "flash", "rom"]
    # Plain integers, because pydantic checks thousands of them without calling Python.
    sectors: tuple[Annotated[int, Field(gt=0)], ...] = ()
    alias_of: str | None = None
    continues: str | None = None
    executable: bool = True

    @property
    def end(self) -> int:
        return self.address + self.size

    @field_validator("sectors", mode="before")
    @classmethod
    def _expand_one_size(cls, value: object, others: ValidationInfo) -> object:
        if isinstance(value, (list, tuple)):
            return [_size(sector) if isinstance(sector, str) else sector for sector in value]
        sector, whole = _size(value), others.data.get("size")
        if isinstance(sector, int) and sector > 0 and isinstance(whole, int):
            return (sector,) * -(-whole // sector)
        return value

    @model_validator(mode="after")
    def _check_sectors(self) -> "MemoryRegion":
        if self.end > 2**32:
            raise ValueError(f"{self.name} ends behind the last address, 0xffffffff")
        if self.sectors and sum(self.sectors) != self.size:
            raise ValueError(f"sectors of {self.name} add up to {sum(self.sectors)} bytes, not {self.size}")
        return self


class Layout(Record):
    """Regions of code, data and stack; the stack's size in bytes.

    ``fixed`` are words that the chip needs at a fixed offset from the start of the code, after the vectors.
    """

    code: str
    data: str
    stack: str
    stack_size: Bytes
    fixed: dict[Address, tuple[Address, ...]] = Field({}, max_length=1)

    @property
    def regions(self) -> tuple[str, str, str]:
        """Names of the regions of code, data and stack."""
        return (self.code, self.data, self.stack)


Lack = Literal[
    "reset cause", "watchpoints", "memory while running", "console", "counter", "bus errors", "execute never", "room"
]
"""Capabilities that a board has unless its file lists them as lacking."""


class ProbeMatch(Record):
    """A debug probe of the board, with its USB numbers.

    ``openocd`` is its OpenOCD script in the board's folder, ``lacks`` are capabilities missing with this probe.
    """

    kind: str
    vendor: Annotated[int, Field(ge=0, lt=2**16)]
    product: Annotated[int, Field(ge=0, lt=2**16)]
    openocd: Annotated[str, Field(pattern=r"^[^/]+\.cfg$")] = "openocd.cfg"
    lacks: frozenset[Lack] = frozenset()


class Identity(Record):
    """A word in the chip that identifies it, since boards of many kinds have the same probe."""

    register_name: str
    address: Address
    mask: Annotated[int, Field(gt=0, lt=2**32)]
    value: Annotated[int, Field(ge=0, lt=2**32)]


class ConsolePart(Record):
    """The board's serial console; ``irqs`` are the interrupt lines that its port handles."""

    name: str
    baud: int
    irqs: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    flow_control: FlowControl = "none"


Pins = dict[Annotated[str, Field(min_length=1)], Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9.]*$")]]
"""Pins of the chip by their names on the board."""


class Connector(Record):
    """A connector: the pins of its left and right column, from top to bottom."""

    left: Pins = Field({})
    right: Pins = Field({})

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Pin and name on the left, name and pin on the right; the columns end in one row."""
        height = max(len(self.left), len(self.right))
        columns = ([("", "")] * (height - len(pins)) + list(pins.items()) for pins in (self.left, self.right))
        return [(left[1], left[0], *right) for left, right in zip(*columns, strict=True)]


class Pinout(Record):
    """Pins of a board.

    Attributes:
        source: the publication that has them.
        pins: pins by purpose, such as ``LEDs``.
        connectors: by name.
        note: missing parts, and why.
    """

    source: str = ""
    pins: dict[str, Pins] = Field({})
    connectors: dict[str, Connector] = Field({})
    note: str = ""

    @model_validator(mode="after")
    def _check_source(self) -> "Pinout":
        if not self.source and (self.pins or self.connectors or not self.note):
            raise ValueError("source is missing: pins and connectors need one; without them, a note says why")
        return self


class Port(Record):
    """A port that boards share, and its numbers: addresses, interrupt lines, clocks.

    ``name`` is a C file of the runtime; a number ``uart`` becomes its macro ``UTVM_PORT_UART``.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    numbers: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Address] = Field({})

    @model_validator(mode="after")
    def _check_clocks(self) -> "Port":
        for name, number in self.numbers.items():
            if name.endswith("_hz") and not number:
                raise ValueError(f"numbers.{name} is a clock frequency and cannot be 0")
        return self

    @property
    def defines(self) -> tuple[str, ...]:
        """C macros, ``NAME=value``."""
        return tuple(f"UTVM_PORT_{name.upper()}={value:#x}u" for name, value in sorted(self.numbers.items()))


class Timeouts(Record):
    """Timeouts of RPC in seconds.

    ``start`` is the time from a reset to a session: a virtual board on a busy computer is slow. ``resend`` is the
    time until a request is sent again; it doubles with each repetition.
    """

    start: Annotated[float, Field(gt=0)] = 30.0
    resend: Annotated[float, Field(gt=0)] = 1.0


class PyOcdPart(Record):
    """Settings of pyOCD for a board.

    Attributes:
        target: name of the chip in pyOCD.
        pack: a CMSIS pack in the board's folder; without one, the target is built in or of an installed pack.
        algorithm: C of a flash algorithm, in the board's folder or the runtime, for a chip unknown to pyOCD; a
            pack is generated from it and the board's memory map.
        options: further options of pyOCD's session.
    """

    target: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")]
    pack: Annotated[str, Field(pattern=r"^[^/]+\.pack$")] | None = None
    algorithm: Port | None = None
    options: dict[Annotated[str, Field(pattern=r"^[a-z0-9_.]+$")], str | int | float] = Field({})

    @model_validator(mode="after")
    def _check_algorithm(self) -> "PyOcdPart":
        if self.pack and self.algorithm:
            raise ValueError("pack and algorithm: a pack has its own algorithms, so give one or the other")
        return self


class Physical(Record):
    """Access to a plugged-in board: by OpenOCD, with the board's ``openocd.cfg``, or by pyOCD.

    Attributes:
        driver: the default of the two.
        select_serial: OpenOCD command that selects a probe by its ``{serial}``.
        console_interface: number of the console's USB interface, for a probe with several serial lines.
    """

    identity: Identity
    probes: Annotated[tuple[ProbeMatch, ...], Field(min_length=1)]
    driver: Literal["openocd", "pyocd"] = "openocd"
    pyocd: PyOcdPart | None = None
    select_serial: Annotated[str, _template_of(serial="")]
    console_interface: Annotated[int, Field(ge=0)] | None = None
    lacks: frozenset[Lack] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _default_for_pyocd(cls, content: Any) -> Any:
        return {"select_serial": "", **content} if content.get("driver") == "pyocd" else content

    @model_validator(mode="after")
    def _check_driver(self) -> "Physical":
        if self.driver == "pyocd" and self.pyocd is None:
            raise ValueError("driver is pyocd, but the key pyocd is missing")
        return self


class VirtualModel(Record):
    """A software model driven like the board: its CPU model and peripherals.

    Attributes:
        probe: OpenOCD command that connects to the model at ``{port}``.
        usb_probes: USB probes that a virtual machine can use with it.
        timing: its clock and flash, for modelled cycles.
        access_ports: values of the registers of further access ports, by number.
    """

    cpu: CoreName
    serial_number: Annotated[str, Field(alias="serial")]
    probe: PortCommand = ""
    usb_probes: tuple[ProbeMatch, ...] = ()
    peripherals: tuple[Peripheral, ...]
    timing: TimingSpec | None = None
    access_ports: dict[Annotated[int, Field(gt=0, lt=256)], dict[Address, Address]] = Field({})


class Logic(Record):
    """Programmable logic: its die's name in bitstreams and IDCODE, and the OpenOCD commands for ``{file}``."""

    die: Annotated[str, Field(min_length=1)]
    idcode: Annotated[int, Field(ge=0, le=0xFFFFFFFF)]
    load: Annotated[str, Field(pattern=r"\{file\}")]


class Emulator(Record):
    """QEMU as the virtual board; its GDB stub is the debug port.

    An instruction takes ``2 ** icount_shift`` nanoseconds of its clock (QEMU's ``-icount``). ``memory`` is QEMU's
    ``-m``, ``options`` are further arguments.

    Attributes:
        timing: for modelled cycles, which the machine's last eight bytes of RAM, at ``counter``, show.
    """

    kind: Literal["qemu"]
    program: Annotated[str, Field(min_length=1)]
    machine: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    # The limit of QEMU 7.2.
    icount_shift: Annotated[int, Field(ge=0, le=10)]
    memory: Bytes | None = None
    options: tuple[str, ...] = ()
    timing: TimingSpec | None = None
    counter: Address = 0


class SpikePart(Record):
    """Spike, driven by OpenOCD with the board's ``openocd.cfg``.

    ``isa`` is Spike's ``--isa``, ``probe`` the OpenOCD command that connects to ``{port}``. ``lacks`` replaces
    ``lacks`` of the virtual board.
    """

    kind: Literal["spike"]
    program: Annotated[str, Field(min_length=1)]
    isa: Annotated[str, Field(pattern=r"^rv(32|64)[a-z_0-9]+$")]
    probe: PortCommand
    lacks: frozenset[Lack] = frozenset()


class JtagModel(Record):
    """A software model behind JTAG pins, driven by OpenOCD.

    Attributes:
        idcode: IDCODE of the core's TAP; ``taps`` are further TAPs between it and TDO.
        probe: OpenOCD commands that connect to ``{pins}``, the socket of the pins, instead of an adapter.
        openocd: script in the board's folder, if ``openocd.cfg`` names an adapter.
        load: OpenOCD commands that load its logic, instead of the board's.
        lacks: replaces ``lacks`` of the virtual board.
    """

    idcode: Annotated[int, Field(ge=0, lt=2**32)]
    taps: tuple[TapSpec, ...] = ()
    probe: Annotated[str, _template_of(pins="")]
    openocd: Annotated[str, Field(pattern=r"^[^/]+\.cfg$")] = "openocd.cfg"
    load: str = ""
    peripherals: tuple[Peripheral, ...]
    lacks: frozenset[Lack] = frozenset()


class Virtual(Record):
    """The virtual board: a software model, or an emulator.

    If it is installed, a ``simulator`` is preferred to the emulator; a model behind ``jtag`` pins always is.
    """

    model: VirtualModel | None = None
    emulator: Emulator | None = None
    simulator: SpikePart | None = None
    jtag: JtagModel | None = None
    lacks: frozenset[Lack] = frozenset()

    @model_validator(mode="after")
    def _check_parts(self) -> "Virtual":
        if (self.model is None) == (self.emulator is None):
            raise ValueError("a virtual board is either a model or an emulator")
        if (self.simulator or self.jtag) and not self.emulator:
            raise ValueError("simulator and jtag need an emulator, too")
        return self

    @property
    def lacking(self) -> frozenset[Lack]:
        """Missing capabilities, including those of QEMU.

        With ``-icount``, a watchpoint of QEMU stops the core before the access again and again. Its stub does not
        reply while the core runs.
        """
        return self.lacks | ({"watchpoints", "memory while running"} if self.emulator else set())


NOTHING_VIRTUAL = Virtual.model_construct()
"""Value of a board without a virtual one."""


class Preparation(Record):
    """A word of memory to be written or checked before an image is loaded into RAM.

    Attributes:
        value: expected in the bits of ``mask``, after it was written if ``write`` is set.
        emulated: True if an emulator has the register.
        otherwise: hint for the user if the check fails.
    """

    address: Address
    value: Annotated[int, Field(ge=0, lt=2**32)]
    mask: Annotated[int, Field(ge=0, lt=2**32)] = 2**32 - 1
    write: bool = False
    emulated: bool = True
    otherwise: str = ""


class Start(Record):
    """Start of a board.

    With ``vectors``, the core starts by itself after a reset. With ``entry``, the debugger runs ``prepare``, loads
    the image if memory lost it, and sets the core's registers. Without ``reset`` it only halts the core, because a
    reset would undo the memory's setup. An emulator is always reset: its memory survives, and nothing else wakes a
    core that waits for an interrupt.
    """

    by: Literal["vectors", "entry"] = "vectors"
    reset: bool = True
    prepare: tuple[Preparation, ...] = ()
