# SPDX-License-Identifier: Apache-2.0
"""Cross compilers as data, and the object files that they write."""
