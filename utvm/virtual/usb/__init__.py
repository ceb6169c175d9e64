# SPDX-License-Identifier: Apache-2.0
"""A virtual board's debug probe as a USB device, served by usbredir: a socket takes the place of the cable.

A virtual machine connected to the socket has the probe plugged in; closing the connection unplugs it.

    usbredir.py   the protocol
    server.py     the socket
    device.py     a device: descriptors, control requests, endpoints
    probes.py     the two probes
    host.py       the host side, for pyOCD

The manufacturer string of every probe marks it as virtual: :data:`MAKER`. Sources: the USB network redirection
protocol, version 0.7; Universal Serial Bus Specification, revision 2.0.
"""

MAKER = "utvm virtual board"
"""Manufacturer string of the virtual probes. No real probe has it."""
