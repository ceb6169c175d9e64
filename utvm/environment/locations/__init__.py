# SPDX-License-Identifier: Apache-2.0
"""Where a command may run: on this computer, or in a container of the frozen environment on it.

``here`` says where this process runs, and whether the tools there are those of the lock. ``errand`` is a command
for another place with the folders that it needs; ``elsewhere`` lists the other places, ``in_container`` is one.
"""
