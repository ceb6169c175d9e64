# SPDX-License-Identifier: Apache-2.0
"""The frozen environment: its locked packages, and the container image and virtual machine built from them.

``recipe`` lists the packages, ``debian`` and ``python_lock`` lock them, ``locked`` reads and compares locks and
keeps the files; ``audit`` checks them for vulnerabilities. ``rootfs`` and ``image`` build reproducible layers
and a container image, ``disk`` and ``builds`` a Vagrant box, what is missing, and a release; ``sbom`` is the
bill of materials. ``engine`` and ``container`` run the image; ``machine`` is a virtual machine. ``remote`` is a
command at another ``location``.
"""
