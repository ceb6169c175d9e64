# SPDX-License-Identifier: Apache-2.0
"""Bitstreams that VTA's authors published for the PYNQ-Z1, by the names of their configurations."""

import hashlib
import urllib.request
from pathlib import Path

from utvm.base.storage.cache import cache_root
from utvm.base.storage.files import create_own_folder, write_whole
from utvm.errors import ConfigError
from utvm.runtime.vta.configuration import Configuration

ADDRESS = "https://github.com/uwsampl/vta-distro/raw/master/bitstreams/pynq"

# SHA-256 of the files there whose names a configuration spells; those of 0.0.0 are named otherwise.
_DIGESTS = {
    "0.0.1/1x16_i8w8a32_15_15_18_17.bit": "c8808d2f4877a7ab4301b58b9926eb5070495feaf3fde401cec4e0228f2db7f3",
    "0.0.1/4x8_i8w8a32_15_16_16_18.bit": "5a5cedeaa40d287f9756f444e9fffb0d8ed76f6b225ddbb54e542c417bad8f13",
    "0.0.2/1x16_i8w8a32_15_15_18_17.bit": "0b24cdf9001d349512ab5fb34a0639056c87c8438dc3bce45be892ae43faf568",
}
_PATIENCE = 30  # Seconds without an answer.


def find_published(configuration: Configuration) -> Path:
    """Return the published bitstream of a configuration: from the user's cache, or else from its address.

    Raises ConfigError if none is published, it cannot be had, or it is not the published one.
    """
    name = f"{configuration.file.HW_VER}/{configuration.bitstream}.bit"
    if name not in _DIGESTS:
        raise ConfigError(
            f"no bitstream {name} is published", f"program_fpga(remote, FILE); published: {', '.join(_DIGESTS)}"
        )
    path, address = cache_root() / "bitstreams" / name, f"{ADDRESS}/{name}"
    try:
        raw, source = path.read_bytes(), str(path)
    except OSError:
        try:
            with urllib.request.urlopen(address, timeout=_PATIENCE) as reply:
                raw, source = reply.read(), address
        except OSError as error:
            raise ConfigError(
                f"{address}: cannot be fetched: {getattr(error, 'reason', error)}",
                f"put the file at {path}, or name one: program_fpga(remote, FILE)",
            ) from error
    if (digest := hashlib.sha256(raw).hexdigest()) != _DIGESTS[name]:
        raise ConfigError(f"{source}: has SHA-256 {digest}, and the published file {_DIGESTS[name]}", "replace it")
    if source == address:
        create_own_folder(path.parent)
        write_whole(path, raw)
    return path
