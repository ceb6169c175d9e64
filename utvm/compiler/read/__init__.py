# SPDX-License-Identifier: Apache-2.0
"""Model files: each format is checked before TVM sees it."""
