# SPDX-License-Identifier: Apache-2.0
"""A virtual RISC-V hart with its debug module, and the devices of Spike's machine."""
