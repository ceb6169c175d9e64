# SPDX-License-Identifier: Apache-2.0
"""The ways to get a board onto the bench: a module each, with one record, ``WAY``. The folder is the table."""
