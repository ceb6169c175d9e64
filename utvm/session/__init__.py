# SPDX-License-Identifier: Apache-2.0
"""Runs models on a board.

:class:`HostDriven` needs only the debug port: it writes the inputs into the program's buffers, runs the core to
the end marker, and reads the outputs and the cycle counter. :class:`utvm.session.rpc.RpcSession` uses RPC over a
byte stream. Both are a :class:`Session`. :class:`StandaloneRunner` starts firmware that needs no host and reads
its console.
"""

from utvm.session.fault import DeviceFault, FaultRecord
from utvm.session.host_driven import HostDriven
from utvm.session.running import RunResult, Session
from utvm.session.standalone import StandaloneRunner

__all__ = ["DeviceFault", "FaultRecord", "HostDriven", "RunResult", "Session", "StandaloneRunner"]
