# SPDX-License-Identifier: Apache-2.0
"""The frozen environment: its locked packages, and the container image and virtual machine built from them."""
