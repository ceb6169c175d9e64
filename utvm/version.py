# SPDX-License-Identifier: Apache-2.0
"""The version of utvm."""

VERSION = "0.2.0"
