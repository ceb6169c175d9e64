# SPDX-License-Identifier: Apache-2.0
"""Starting, supervising and ending processes; who is at the other end of a socket."""
