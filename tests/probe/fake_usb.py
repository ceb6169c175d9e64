"""A USB device as pyusb shows it, and as Linux lists it: no probe can be counted on where tests run."""

from dataclasses import dataclass, field
from pathlib import Path

REAL_MAKER = "STMicroelectronics"


@dataclass
class FakeUsbDevice:
    """What pyusb gives for a device; ``strings`` raises where it holds an exception."""

    idVendor: int = 0x0483  # noqa: N815 (pyusb's names)
    idProduct: int = 0x374B  # noqa: N815
    bus: int = 1
    address: int = 5
    port_numbers: tuple[int, ...] | None = (1,)
    iSerialNumber: int = 3  # noqa: N815
    iProduct: int = 2  # noqa: N815
    iManufacturer: int = 1  # noqa: N815
    strings: dict[int, str | Exception] = field(default_factory=lambda: {1: REAL_MAKER, 2: "STM32 STLink", 3: "A"})


def plug_in(bus: Path, port: int, serial: str, *, maker: str = REAL_MAKER, address: int = 5) -> None:
    """Put an ST-Link into a folder that is laid out as /sys/bus/usb/devices, again where it was there before."""
    folder = bus / f"1-{port}"
    folder.mkdir(exist_ok=True)
    for name, value in {"serial": serial, "manufacturer": maker, "devnum": str(address)}.items():
        (folder / name).write_text(value)


def plugged_in(bus: Path) -> list[FakeUsbDevice]:
    """Return what is in such a folder."""
    return [
        FakeUsbDevice(
            address=int((folder / "devnum").read_text()),
            port_numbers=(int(folder.name.removeprefix("1-")),),
            strings={
                1: (folder / "manufacturer").read_text(),
                2: "ST-Link",
                3: (folder / "serial").read_text(),
            },
        )
        for folder in sorted(bus.iterdir())
    ]
