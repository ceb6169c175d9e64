# SPDX-License-Identifier: Apache-2.0
"""The frozen environment as a virtual machine: Vagrant and libvirt run it, ssh and rsync reach it.

``kvm`` finds out what can run it here, ``settings`` is what Vagrant is told, ``records`` what we keep of a
machine. ``daemons`` has libvirt running, ``libvirt`` looks at what it has and removes what is ours, ``vagrant``
drives Vagrant, ``boxes`` has the box in it. ``guest`` talks to the running machine. ``machine`` puts them
together: one machine for a checkout.
"""
