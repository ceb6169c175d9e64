# SPDX-License-Identifier: Apache-2.0
"""The frozen environment as a virtual machine, run by Vagrant and libvirt, reached by ssh and rsync.

``settings`` holds a machine's records and settings, and chooses its acceleration. ``libvirt`` starts, queries
and removes, ``vagrant`` drives Vagrant and its boxes. ``guest`` talks to the running machine. ``machine``
combines them, and runs commands there.
"""
