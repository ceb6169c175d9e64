# SPDX-License-Identifier: Apache-2.0
"""A mutation tester for the code that decides verdicts: it changes the code, and a test should fail."""
