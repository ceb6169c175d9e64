# SPDX-License-Identifier: Apache-2.0
"""The drivers of this package: a module each, with one record, ``DRIVER``. The folder is the table."""
