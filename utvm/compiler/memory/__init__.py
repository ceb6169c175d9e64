# SPDX-License-Identifier: Apache-2.0
"""Working memory: the graph of a model, memory sharing, and the memory plan."""
