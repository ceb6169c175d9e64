# SPDX-License-Identifier: Apache-2.0
"""The frozen environment: its locked packages, and the container image and virtual machine built from them.

``recipe`` lists the packages, ``debian`` and ``python_lock`` lock them, ``locked`` reads and compares locks;
``audit`` checks them for vulnerabilities; ``store`` keeps the files. ``rootfs`` and ``layers`` build reproducible
layers, ``image`` a container image, ``box`` and ``disk`` a Vagrant box, ``making`` what is missing; ``sbom`` is
the bill of materials, ``release`` signs and publishes. ``engine`` and ``container`` run the image,
``machine`` is a virtual machine. ``remote`` is a command at another ``location``.
"""
