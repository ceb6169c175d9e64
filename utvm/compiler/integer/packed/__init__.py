# SPDX-License-Identifier: Apache-2.0
"""Kernels of int8 convolutions for any core: no instruction beyond multiplication is asked for."""
