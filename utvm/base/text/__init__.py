# SPDX-License-Identifier: Apache-2.0
"""Names, quoting for each language that utvm writes, templates, the terminal."""
