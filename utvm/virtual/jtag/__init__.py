# SPDX-License-Identifier: Apache-2.0
"""Virtual boards with a JTAG port, which OpenOCD drives through remote_bitbang."""
