# SPDX-License-Identifier: Apache-2.0
"""Runs models on a board.

:class:`HostDriven` needs nothing but the debug port: it writes inputs into the program's buffers, lets the core
run to the end marker, and reads outputs and the cycle counter back. :class:`utvm.session.rpc.RpcSession` asks the
board over a pipe of bytes. Both are a :class:`Session`. :class:`StandaloneRunner` starts a firmware that needs no
host, and listens to its console.
"""

from utvm.session.fault import DeviceFault, FaultRecord
from utvm.session.host_driven import HostDriven
from utvm.session.running import RunResult, Session
from utvm.session.standalone import StandaloneRunner

__all__ = ["DeviceFault", "FaultRecord", "HostDriven", "RunResult", "Session", "StandaloneRunner"]
