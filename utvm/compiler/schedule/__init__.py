# SPDX-License-Identifier: Apache-2.0
"""Convert Relax operators to TIRx functions, schedule their loops and lower them."""
