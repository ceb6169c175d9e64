# SPDX-License-Identifier: Apache-2.0
"""Working memory: the graph of a model, what may lie over what, and where everything lies."""
