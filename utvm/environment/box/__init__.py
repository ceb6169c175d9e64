# SPDX-License-Identifier: Apache-2.0
"""The Vagrant box: the locked environment as the disk of a virtual machine, the same bytes for the same lock."""
