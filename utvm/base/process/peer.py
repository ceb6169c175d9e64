# SPDX-License-Identifier: Apache-2.0
"""The user at the other end of a loopback TCP connection.

Every local user can connect to every loopback port. Prefer a Unix socket in a folder of mode 0700; this is for
programs that speak TCP only.
"""

import contextlib
import os
import pwd
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG, linux/netlink.h
_DIAG_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY, linux/sock_diag.h
_REQUEST = 1  # NLM_F_REQUEST
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_QUESTION = struct.Struct("=BBBBI")  # struct inet_diag_req_v2, before its struct inet_diag_sockid
_SOCKET_ID = struct.Struct("!HH16s16s")  # struct inet_diag_sockid: ports and addresses in network order
_ANY_INTERFACE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # interface, and no cookie
_UID_AND_INODE = struct.Struct("=II")
_UID_OFFSET = _HEADER.size + 4 + 48 + 3 * 4  # in struct inet_diag_msg: state, socket id, three words, then uid


def peer_uid(connection: socket.socket) -> int | None:
    """Return the uid of the process that opened the other end of an accepted TCP connection.

    None if no process of this computer holds that end any more. (The kernel reports uid 0 for a socket without an
    owner; it is not taken for root's.)
    """
    peer, own = connection.getpeername()[:2], connection.getsockname()[:2]
    try:
        return _ask_kernel(connection.family, peer, own)
    except OSError:
        return _search_table(connection.family, peer, own)


class OwnerOnlySocket(socket.socket):
    """A listening TCP socket whose ``accept`` returns only connections of this process's user.

    Others are reset before any byte is read.

    Attributes:
        also: further accepted users.
    """

    also: frozenset[int] = frozenset()

    @classmethod
    def listen_on(cls, host: str, port: int, backlog: int = 64) -> "OwnerOnlySocket":
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = cls(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(backlog)
        except BaseException:
            listener.close()
            raise
        return listener

    def accept(self) -> tuple[socket.socket, object]:
        while True:
            connection, address = super().accept()
            if is_own(connection, self.also):
                return connection, address
            refuse(connection)


def listen(
    port: int, *, host: str = "127.0.0.1", anyone: bool = False, also: frozenset[int] = frozenset()
) -> socket.socket:
    """Listen on a TCP port, for this process's user only or for anyone.

    Args:
        also: uids of further users to accept.
    """
    if anyone:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    listener = OwnerOnlySocket.listen_on(host, port)
    listener.also = also
    return listener


class Acceptor:
    """A listening socket; :meth:`close` ends :meth:`clients`, in any thread."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    def clients(self) -> Iterator[socket.socket]:
        """Accept clients until :meth:`close`."""
        with contextlib.suppress(OSError):
            while True:
                yield self._listener.accept()[0]

    def close(self) -> None:
        # shutdown() wakes a thread that is blocked in accept(); close() alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Create a connected TCP pair within this process, like socketpair()."""
    with OwnerOnlySocket.listen_on("127.0.0.1", 0) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, address = listener.accept()
        while address != ours.getsockname():  # another process of this user was faster
            theirs.close()
            theirs, address = listener.accept()
    for end in (ours, theirs):
        # Replies are short, and the client waits for each.
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ours, theirs


def is_own(connection: socket.socket, also: frozenset[int] = frozenset()) -> bool:
    """True if the other end belongs to this process's user, or to one in ``also``."""
    with contextlib.suppress(OSError):  # The peer has already closed.
        return peer_uid(connection) in {os.geteuid(), *also}
    return False


def refuse(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def access_note(*, anyone: bool) -> str:
    if anyone:
        return "ANYONE who reaches it may connect"
    try:
        user = f"user {pwd.getpwuid(os.geteuid()).pw_name}"
    except KeyError:
        user = f"uid {os.geteuid()}"
    return f"only {user} of this computer may connect"


def _ask_kernel(family: int, peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Query the one socket with the peer's local address (sock_diag(7))."""
    source, destination = _pack_address(family, peer[0]), _pack_address(family, own[0])
    identity = _SOCKET_ID.pack(peer[1], own[1], source.ljust(16, b"\0"), destination.ljust(16, b"\0"))
    request = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFF) + identity + _ANY_INTERFACE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(_HEADER.pack(_HEADER.size + len(request), _DIAG_BY_FAMILY, _REQUEST, 1, 0) + request)
        reply = kernel.recv(8192)
    if _HEADER.unpack_from(reply)[1] != _DIAG_BY_FAMILY:
        (error,) = struct.unpack_from("=i", reply, _HEADER.size)
        if error == -2:  # ENOENT: no such socket here
            return None
        raise OSError(-error, os.strerror(-error))
    uid, inode = _UID_AND_INODE.unpack_from(reply, _UID_OFFSET)
    return uid if inode else None


def _search_table(family: int, peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Look the socket up in /proc/net/tcp (proc(5)): slower, for kernels without tcp_diag."""
    table = Path("/proc/net/tcp6" if family == socket.AF_INET6 else "/proc/net/tcp")
    row = [_table_address(family, *peer), _table_address(family, *own)]
    for line in table.read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == row:
            return int(fields[7]) if fields[9] != "0" else None
    return None


def _table_address(family: int, host: str, port: int) -> str:
    packed = _pack_address(family, host)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"


def _pack_address(family: int, host: str) -> bytes:
    return socket.inet_pton(family, host.partition("%")[0])
