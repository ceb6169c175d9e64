# SPDX-License-Identifier: Apache-2.0
"""Debug ports: probes on USB, OpenOCD and pyOCD processes, and a GDB remote client.

Other packages access a target only through :class:`utvm.probe.gdb.GdbClient`.
"""
