# SPDX-License-Identifier: Apache-2.0
"""Boards shared by many users, on many hosts, by labgrid's coordinator, exporters and client."""
