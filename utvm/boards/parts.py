# SPDX-License-Identifier: Apache-2.0
"""The records that a board is made of: its memory, how a physical one is reached, and what the virtual one is."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from utvm.base.storage.config import Record
from utvm.virtual.spec import CoreName, Peripheral, TapSpec, WaitStates

Kind = Literal["virtual", "physical", "process"]
"""What a board may be in the end."""

SiliconPart = Literal["probe", "memory", "flash", "debugging", "clock", "console", "faults", "models"]
"""The parts of a board that software can be wrong about; docs/bring-up.md says which suites show each."""

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

FlowControl = Literal["none", "rts-cts"]


class MemoryRegion(Record):
    """A region of the board's memory map, as its reference manual gives it.

    ``sectors`` are the erase units of a flash region in bytes, in address order; in a file, one size is that of
    all. ``alias_of`` names the flash region that this one mirrors on another bus. ``continues`` names the RAM that
    this one follows without a gap, on the same bus, so that something may lie in both. ``executable`` is whether
    code runs there.
    """

    name: str
    address: Address
    size: Bytes
    kind: Literal["ram", "flash", "rom"]
    # Thousands of them: as plain numbers, which are checked without a call of Python's for each.
    sectors: tuple[Annotated[int, Field(gt=0)], ...] = ()
    alias_of: str | None = None
    continues: str | None = None
    executable: bool = True

    @property
    def end(self) -> int:
        """First address after the region."""
        return self.address + self.size

    @field_validator("sectors", mode="before")
    @classmethod
    def _one_size_is_that_of_all(cls, value: object, others: ValidationInfo) -> object:
        if isinstance(value, (list, tuple)):
            return [_size(one) if isinstance(one, str) else one for one in value]
        one, whole = _size(value), others.data.get("size")
        if isinstance(one, int) and one > 0 and isinstance(whole, int):
            return (one,) * -(-whole // one)
        return value

    @model_validator(mode="after")
    def _sectors_fill_the_region(self) -> "MemoryRegion":
        if self.end > 2**32:
            raise ValueError(f"{self.name} ends behind the last address, 0xffffffff")
        if self.sectors and sum(self.sectors) != self.size:
            raise ValueError(f"sectors of {self.name} add up to {sum(self.sectors)} bytes, not {self.size}")
        return self


class Layout(Record):
    """Which region holds what, and the size of the stack in bytes.

    ``fixed`` are words that the chip wants at a fixed distance from the beginning of the code, behind the vectors.
    """

    code: str
    data: str
    stack: str
    stack_size: Bytes
    fixed: dict[Address, tuple[Address, ...]] = Field({}, max_length=1)

    @property
    def regions(self) -> tuple[str, str, str]:
        """The regions in the order of the roles: code, data, stack."""
        return (self.code, self.data, self.stack)


Lack = Literal[
    "reset cause",
    "watchpoints",
    "memory while running",
    "console",
    "counter",
    "bus errors",
    "execute never",
    "room",
]
"""What suites ask for and a board has unless it is said that it has not."""


class ProbeMatch(Record):
    """A debug probe that the board carries or is used with: what kind, and how USB knows it.

    ``openocd`` is the file in the board's folder that OpenOCD reads for it. ``lacks`` is what the board has not
    with this probe, beyond what it lacks anyway.
    """

    kind: str
    vendor: Annotated[int, Field(ge=0, lt=2**16)]
    product: Annotated[int, Field(ge=0, lt=2**16)]
    openocd: Annotated[str, Field(pattern=r"^[^/]+\.cfg$")] = "openocd.cfg"
    lacks: frozenset[Lack] = frozenset()


class Identity(Record):
    """A word in the chip that tells which one it is: probes of one kind sit on boards of many."""

    register_name: str
    address: Address
    mask: Annotated[int, Field(gt=0, lt=2**32)]
    value: Annotated[int, Field(ge=0, lt=2**32)]


class ConsolePart(Record):
    """The serial line on which the board talks; ``irqs`` are the interrupt lines that its port's handler takes.

    ``flow_control`` is what its port does and this computer is to do with it.
    """

    name: str
    baud: int
    irqs: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    flow_control: FlowControl = "none"


class Port(Record):
    """A port that boards share, and its numbers: addresses, lines, clocks.

    ``name`` is a C file of the runtime; ``numbers`` become its macros, ``uart`` for instance ``UTVM_PORT_UART``.
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    numbers: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Address] = Field({})

    @model_validator(mode="after")
    def _clocks_run(self) -> "Port":
        for name, number in self.numbers.items():
            if name.endswith("_hz") and not number:
                raise ValueError(f"numbers.{name} is a clock's, and cannot be 0")
        return self

    @property
    def defines(self) -> tuple[str, ...]:
        """The C macros, ``NAME=value``."""
        return tuple(f"UTVM_PORT_{name.upper()}={value:#x}u" for name, value in sorted(self.numbers.items()))


class Timeouts(Record):
    """How long RPC waits for the board, in seconds.

    ``start`` is until it has come up after a reset and begun a session: a virtual board on a busy computer takes
    long. ``resend`` is until a request is sent again, the second time after twice as long, and so on.
    """

    start: Annotated[float, Field(gt=0)] = 30.0
    resend: Annotated[float, Field(gt=0)] = 1.0


def _can_be_filled_in(command: str, **values: str | int) -> str:
    try:
        command.format(**values)
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"only {{{', '.join(values)}}} is filled in, not {error}") from error
    return command


class PyOcdPart(Record):
    """What pyOCD is told of a board.

    ``target`` is the chip's name there. ``pack`` is the CMSIS pack that has it, a file in the board's folder;
    without one it is built into pyOCD, or of a pack that pyOCD has installed. With ``algorithm`` pyOCD need not
    know the chip: a pack is made of the board's own memory map and of that C file, which programs the flash: it
    lies in the board's folder, or is one of the runtime's. ``options`` are further ones of its session.
    """

    target: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$")]
    pack: Annotated[str, Field(pattern=r"^[^/]+\.pack$")] | None = None
    algorithm: Port | None = None
    options: dict[Annotated[str, Field(pattern=r"^[a-z0-9_.]+$")], str | int | float] = Field({})

    @model_validator(mode="after")
    def _a_pack_has_its_own_algorithm(self) -> "PyOcdPart":
        if self.pack and self.algorithm:
            raise ValueError("pack and algorithm: a pack has its own algorithms, so it is one or the other")
        return self


class Physical(Record):
    """How a board that is plugged in is reached: by OpenOCD, with the board's ``openocd.cfg``, or by pyOCD.

    ``driver`` is which of the two; a board with both parts takes the other way where a command says so.
    ``select_serial`` is the OpenOCD command that picks one probe; ``{serial}`` is filled in. ``console_interface``
    is the number of the USB interface that is the serial line, where the probe has several that look like one.
    """

    identity: Identity
    probes: Annotated[tuple[ProbeMatch, ...], Field(min_length=1)]
    driver: Literal["openocd", "pyocd"] = "openocd"
    pyocd: PyOcdPart | None = None
    select_serial: str
    console_interface: Annotated[int, Field(ge=0)] | None = None
    lacks: frozenset[Lack] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _only_openocd_is_given_commands(cls, content: Any) -> Any:
        return {"select_serial": "", **content} if content.get("driver") == "pyocd" else content

    @model_validator(mode="after")
    def _its_driver_is_described(self) -> "Physical":
        if self.driver == "pyocd" and self.pyocd is None:
            raise ValueError("driver is pyocd, and pyocd, which says what it is told, is missing")
        return self

    @model_validator(mode="after")
    def _serial_can_be_filled_in(self) -> "Physical":
        _can_be_filled_in(self.select_serial, serial="")
        return self


class VirtualModel(Record):
    """A software model of ours, which the same OpenOCD drives: its CPU model and peripherals.

    ``probe`` is the OpenOCD command that finds it, where OpenOCD drives the board; ``{port}`` is filled in.
    ``usb_probes`` are those that a virtual machine may have it on its USB with. ``wait_states`` is a model of its
    flash, for who asks for one. ``access_ports`` are those of its debug port beside that to memory, by number:
    registers and what they hold.
    """

    cpu: CoreName
    serial: str
    probe: str = ""
    usb_probes: tuple[ProbeMatch, ...] = ()
    peripherals: tuple[Peripheral, ...]
    wait_states: WaitStates | None = None
    access_ports: dict[Annotated[int, Field(gt=0, lt=256)], dict[Address, Address]] = Field({})

    @model_validator(mode="after")
    def _port_can_be_filled_in(self) -> "VirtualModel":
        _can_be_filled_in(self.probe, port=0)
        return self


class Logic(Record):
    """A chip's programmable logic.

    ``part`` is what bitstreams call the chip; ``load`` the OpenOCD commands that program it, in which ``{file}``
    is filled in.
    """

    part: Annotated[str, Field(min_length=1)]
    load: Annotated[str, Field(pattern=r"\{file\}")]


class Emulator(Record):
    """The QEMU that is the virtual board, whose GDB stub is its debug port.

    An instruction takes ``2 ** icount_shift`` nanoseconds of its clock (QEMU's ``-icount``). ``memory`` is what
    its machine is given, where it has a choice; ``options`` are further words of its command line.
    """

    kind: Literal["qemu"]
    program: Annotated[str, Field(min_length=1)]
    machine: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    # QEMU 7.2 takes no more.
    icount_shift: Annotated[int, Field(ge=0, le=10)]
    memory: Bytes | None = None
    options: tuple[str, ...] = ()


class SpikePart(Record):
    """Spike, which OpenOCD drives with the board's ``openocd.cfg``.

    ``isa`` is the instruction set in Spike's words. ``probe`` is the OpenOCD command that finds it; ``{port}`` is
    filled in. ``lacks`` is as that of the virtual board, in place of it.
    """

    kind: Literal["spike"]
    program: Annotated[str, Field(min_length=1)]
    isa: Annotated[str, Field(pattern=r"^rv(32|64)[a-z_0-9]+$")]
    probe: str
    lacks: frozenset[Lack] = frozenset()

    @model_validator(mode="after")
    def _port_can_be_filled_in(self) -> "SpikePart":
        _can_be_filled_in(self.probe, port=0)
        return self


class JtagModel(Record):
    """A software model of ours behind JTAG pins, which OpenOCD drives with the board's ``openocd.cfg``.

    ``openocd`` is another file of the board's folder, where that one names an adapter. ``idcode`` is that of its
    core's TAP, ``taps`` are others between that and TDO. ``probe`` are the OpenOCD commands that find it, in place
    of those of an adapter; ``{pins}``, the socket of its pins, is filled in. ``lacks`` is as that of the virtual
    board, in place of it. ``load`` are commands that program its logic, in place of the board's.
    """

    idcode: Annotated[int, Field(ge=0, lt=2**32)]
    taps: tuple[TapSpec, ...] = ()
    probe: str
    openocd: Annotated[str, Field(pattern=r"^[^/]+\.cfg$")] = "openocd.cfg"
    load: str = ""
    peripherals: tuple[Peripheral, ...]
    lacks: frozenset[Lack] = frozenset()

    @model_validator(mode="after")
    def _pins_can_be_filled_in(self) -> "JtagModel":
        _can_be_filled_in(self.probe, pins="")
        return self


class Virtual(Record):
    """What the virtual board is: a software model of ours, or an emulator of others.

    A ``simulator`` goes before the emulator where it is installed, a model behind ``jtag`` pins always.
    """

    model: VirtualModel | None = None
    emulator: Emulator | None = None
    simulator: SpikePart | None = None
    jtag: JtagModel | None = None
    lacks: frozenset[Lack] = frozenset()

    @model_validator(mode="after")
    def _is_one_of_the_two(self) -> "Virtual":
        if (self.model is None) == (self.emulator is None):
            raise ValueError("a virtual board is either a model or an emulator")
        if (self.simulator or self.jtag) and not self.emulator:
            raise ValueError("a simulator and a model behind JTAG go before an emulator, which is missing")
        return self

    @property
    def lacking(self) -> frozenset[Lack]:
        """What it has not, with what no board in QEMU has.

        With ``-icount`` a watchpoint of QEMU's stops the core before the access, every time anew: it never gets
        past. Its stub answers nothing while the core runs.
        """
        return self.lacks | ({"watchpoints", "memory while running"} if self.emulator else set())


NOTHING_VIRTUAL = Virtual.model_construct()
"""Of a board without a virtual one."""


class Preparation(Record):
    """A word of memory that must be right before an image is loaded into RAM: written, or only looked at.

    ``value`` is written where ``write`` says so, and then expected of the bits of ``mask``. ``otherwise`` says
    what to do if it is not there. ``emulated`` tells whether an emulator has the register at all.
    """

    address: Address
    value: Annotated[int, Field(ge=0, lt=2**32)]
    mask: Annotated[int, Field(ge=0, lt=2**32)] = 2**32 - 1
    write: bool = False
    emulated: bool = True
    otherwise: str = ""


class Start(Record):
    """How a board comes to its first instruction.

    With ``vectors`` the core finds it after a reset by itself. With ``entry`` the debugger does what is left to
    do: ``prepare`` memory, load the image if memory has lost it, and set the core's registers. Without ``reset``
    the core is only halted before that: a reset would take away what the memory needs. An emulator is reset all
    the same: its memory stays, and nothing else wakes a core that waits for an interrupt.
    """

    by: Literal["vectors", "entry"] = "vectors"
    reset: bool = True
    prepare: tuple[Preparation, ...] = ()
