# SPDX-License-Identifier: Apache-2.0
"""Debug ports: probes on USB, OpenOCD and pyOCD processes, and a GDB client for all access to targets."""
