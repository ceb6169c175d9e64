"""A USB device as pyusb shows it: no probe can be counted on where tests run."""

from dataclasses import dataclass, field


@dataclass
class FakeUsbDevice:
    """What pyusb gives for a device; ``strings`` raises where it holds an exception."""

    idVendor: int = 0x0483  # noqa: N815 (pyusb's names)
    idProduct: int = 0x374B  # noqa: N815
    bus: int = 1
    port_numbers: tuple[int, ...] | None = (1,)
    iSerialNumber: int = 3  # noqa: N815
    iProduct: int = 2  # noqa: N815
    strings: dict[int, str | Exception] = field(default_factory=lambda: {2: "STM32 STLink", 3: "A"})
