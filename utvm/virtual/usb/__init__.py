# SPDX-License-Identifier: Apache-2.0
"""A virtual board's debug probe as a USB device, served over usbredir: a socket takes the place of the cable.

A virtual machine that connects to the socket has the probe plugged in; closing the connection unplugs it.

    usbredir.py      the wire format
    host.py          the end of the wire that has the device
    server.py        the socket
    descriptors.py   what a device says of itself
    device.py        a device: its control requests and its endpoints
    serial_port.py   the virtual COM port
    st_link.py, cmsis_dap.py    the two probes

Whatever numbers and serial number a probe here has, its maker's name says that it is virtual: :data:`MAKER`.

Sources: the USB network redirection protocol, version 0.7; Universal Serial Bus Specification, revision 2.0.
"""

MAKER = "utvm virtual board"
"""What our probes give as their manufacturer. No user chooses it, and no maker of a probe calls himself so."""
