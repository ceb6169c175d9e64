# SPDX-License-Identifier: Apache-2.0
"""Virtual boards behind JTAG pins, which OpenOCD drives by remote_bitbang."""
