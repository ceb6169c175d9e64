# SPDX-License-Identifier: Apache-2.0
"""The log and the folders that hold logs."""
