# SPDX-License-Identifier: Apache-2.0
"""The frozen environment as a virtual machine, run by Vagrant and libvirt, reached by ssh and rsync."""
