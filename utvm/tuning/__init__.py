# SPDX-License-Identifier: Apache-2.0
"""Tuning: find the fastest implementation of each layer of a model by measuring candidates on a board."""
