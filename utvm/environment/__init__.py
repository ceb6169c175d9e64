# SPDX-License-Identifier: Apache-2.0
"""The frozen environment: its locked packages, and the container image and virtual machine built from them.

``recipe`` lists the packages, ``debian`` and ``python_lock`` lock them, ``locked`` reads and compares locks;
``advisories`` and ``audit`` check them for vulnerabilities; ``store`` keeps the files. ``rootfs``, ``layer`` and
``layers`` build reproducible layers, ``image`` a container image, ``box`` and ``disk`` a Vagrant box, ``making``
what is missing; ``sbom`` is the bill of materials, ``release`` signs and publishes. ``engine`` and ``container``
run the image, ``guard`` removes it; ``machine`` is the virtual machine. ``remote`` is a command at another
``location``.
"""
