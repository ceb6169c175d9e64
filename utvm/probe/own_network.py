# SPDX-License-Identifier: Apache-2.0
"""Brings up the loopback interface of a new network namespace, then becomes another program."""

import fcntl
import os
import socket
import struct
import sys

_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1  # netdevice(7)

if __name__ == "__main__":
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
    os.execvp(sys.argv[1], sys.argv[1:])
