# SPDX-License-Identifier: Apache-2.0
"""Virtual boards behind JTAG pins, which OpenOCD drives over TCP by remote_bitbang."""
