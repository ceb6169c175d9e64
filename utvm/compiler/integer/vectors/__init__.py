# SPDX-License-Identifier: Apache-2.0
"""Kernels of int8 convolutions for cores with vectors of 16 bytes (Arm's MVE and NEON)."""
