# SPDX-License-Identifier: Apache-2.0
"""Boards that are shared by many, on many hosts: labgrid's coordinator, exporters and client do it.

``helper`` runs in labgrid's own Python environment and imports nothing of utvm; ``client`` makes that environment,
talks to the helper, and has the lease: the right to a board for a while. ``hosted`` is what a host exports.
"""
