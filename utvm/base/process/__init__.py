# SPDX-License-Identifier: Apache-2.0
"""Starting, supervising and ending processes; identifying a socket's peer."""
