# SPDX-License-Identifier: Apache-2.0
"""Ways to a board's debug port: probes found on USB, OpenOCD under supervision, and a GDB remote client.

The rest of the project talks to a target through :class:`utvm.probe.gdb.GdbClient` alone.
"""
