# SPDX-License-Identifier: Apache-2.0
"""The int8 operators, a file each: how it is recognised, what it computes, and how it is made."""
