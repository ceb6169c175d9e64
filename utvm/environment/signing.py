# SPDX-License-Identifier: Apache-2.0
"""Signatures of what is handed on: minisign's, over the list of checksums that lies beside the files.

The list has the SHA-256 of every file in its folder, so one signature is for all of them.
"""

import shutil
import subprocess
from pathlib import Path

from utvm.errors import ConfigError, ProvisionError

_SUMS = "SHA256SUMS"


def check_key(key: str) -> None:
    """Refuse a key that could not be used, before there is any work; an empty one is none."""
    if not key:
        return
    try:
        with Path(key).open("rb") as file:
            begin = file.read(200)
    except OSError as error:
        raise ConfigError(f"--sign {key}: cannot be read: {error.strerror}", "minisign -G makes a key") from error
    if b"secret key" not in begin.partition(b"\n")[0]:
        raise ConfigError(f"--sign {key}: is no secret key of minisign", "give the file that minisign -G -s made")
    if shutil.which("minisign") is None:
        raise ProvisionError("minisign is not installed", "sudo apt-get install minisign")


def sign(folder: Path, key: str, comment: str) -> Path:
    """Sign a folder's list of checksums, and return where the signature is.

    A key with a password asks for it on the terminal.

    Args:
        comment: what the signature vouches for beside the list.
    """
    sums = folder / _SUMS
    signature = sums.with_name(f"{_SUMS}.minisig")
    done = subprocess.run(
        ["minisign", "-S", "-q", "-s", key, "-m", sums, "-x", signature, "-t", comment], check=False
    )
    if done.returncode != 0:
        raise ProvisionError(f"{sums} is not signed: minisign ended with exit code {done.returncode}")
    return signature
