# SPDX-License-Identifier: Apache-2.0
"""Published files are signed, and verified by the command of docs/environment.md."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import inv
from utvm.environment.builds import check_key, sign
from utvm.environment.image import write_sums
from utvm.errors import ConfigError
from utvm.paths import ROOT


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A secret key without a password, beside its public key."""
    subprocess.run(
        ["minisign", "-G", "-W", "-p", tmp_path / "utvm.pub", "-s", tmp_path / "utvm.key"],
        check=True,
        capture_output=True,
    )
    return tmp_path / "utvm.key"


@pytest.fixture
def signed_folder(tmp_path: Path, key: Path) -> Path:
    folder = tmp_path / "published"
    (folder / "oci").mkdir(parents=True)
    (folder / "oci" / "index.json").write_text("{}")
    (folder / "utvm.box").write_bytes(b"box")
    write_sums(folder)
    sign(folder, str(key), "utvm environment abc")
    return folder


def _verify(folder: Path, public: Path) -> tuple[bool, str]:
    """Run the command of the guide."""
    (line,) = re.findall(r"^minisign -V.*$", (ROOT / "docs" / "environment.md").read_text(), re.MULTILINE)
    command = line.partition("  #")[0].replace("utvm.pub", str(public))
    completed = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False)
    return completed.returncode == 0, completed.stdout


def test_signature_is_verified_by_the_public_key(signed_folder: Path, tmp_path: Path) -> None:
    valid, output = _verify(signed_folder, tmp_path / "utvm.pub")
    assert valid
    assert "Trusted comment: utvm environment abc" in output


@pytest.mark.parametrize("file", ["oci/index.json", "utvm.box", "SHA256SUMS", "SHA256SUMS.minisig"])
def test_changed_byte_in_any_file_is_detected(file: str, signed_folder: Path, tmp_path: Path) -> None:
    content = (signed_folder / file).read_bytes()
    (signed_folder / file).write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
    assert not _verify(signed_folder, tmp_path / "utvm.pub")[0]


def test_wrong_key_is_detected(signed_folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pub"
    subprocess.run(["minisign", "-G", "-W", "-p", other, "-s", tmp_path / "other.key"], check=True, capture_output=True)
    assert not _verify(signed_folder, other)[0]


def test_unusable_key_is_refused_before_the_work(key: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"utvm\.pub: is not a secret key"):
        check_key(str(tmp_path / "utvm.pub"))
    check_key(str(key))
    for command in ("docker.build", "vm.box"):
        completed = inv(command, "--sign", tmp_path / "nowhere")
        assert completed.returncode == 2
        assert "nowhere: cannot be read: No such file" in completed.stderr
