# SPDX-License-Identifier: Apache-2.0
"""The frozen environment: what it is made of to the last byte, and the container image made of that.

``recipe`` says what is wanted, ``debian`` and ``python_lock`` what exactly that is, ``difference`` how two of them
differ; ``advisories`` holds them against what is known; ``store`` keeps the files. ``rootfs`` and ``python_layer``
make a layer each out of those, ``layer`` writes layers so that equal content is equal bytes, ``image`` makes them
an OCI image, ``build`` does it all. ``licences`` and ``sbom`` say what is in it, ``signing`` vouches for it.
``engine`` and ``container`` run the image; ``guard`` and ``owner`` see to it that nothing stays. ``making`` makes
an image or a box where one is needed and not there; a ``draft`` is the folder in which something is made.
"""
