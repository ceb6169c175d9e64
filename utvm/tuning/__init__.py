# SPDX-License-Identifier: Apache-2.0
"""Looking for what computes each layer of a model fastest on a board, by measuring it there."""
