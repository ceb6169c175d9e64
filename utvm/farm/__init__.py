# SPDX-License-Identifier: Apache-2.0
"""Boards shared by many users, on many hosts, by labgrid's coordinator, exporters and client.

``helper`` runs in labgrid's own Python environment and imports nothing of utvm; ``client`` talks to it, holds a
lease and retries on another board, once. ``location`` runs commands at boards' hosts. ``hosted`` runs the programs of a
host, for one user only.
"""
