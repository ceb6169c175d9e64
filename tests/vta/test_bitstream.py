# SPDX-License-Identifier: Apache-2.0
"""Bitstreams are looked through before one is sent: what is damaged, cut short or for another chip stays here."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm import vta
from utvm.errors import ConfigError

# Put together here as those files are laid out: magic; letter, length, value; bus width and synchronisation words.
DATA = b"\xff" * 32 + bytes.fromhex("000000bb11220044ffffffffffffffffaa99556620000000") + b"\0" * 64


def made(part: bytes = b"7z020clg400", data: bytes = DATA, length: int | None = None) -> bytes:
    """Return a bitstream."""
    raw = bytes.fromhex("00090ff00ff00ff00ff0000001")
    fields = ((b"a", b"vta_wrapper;UserID=0XFFFFFFFF"), (b"b", part), (b"c", b"2020/03/12"), (b"d", b"15:10:29"))
    for letter, value in fields:
        raw += letter + (len(value) + 1).to_bytes(2, "big") + value + b"\0"
    return raw + b"e" + (len(data) if length is None else length).to_bytes(4, "big") + data


def program(tmp_path: Path, raw: bytes) -> None:
    """Send one to this process's model."""
    path = tmp_path / "1x16_i8w8a32_15_15_18_17.bit"
    path.write_bytes(raw)
    vta.program_fpga(vta.connect(vta.get_env()), path)


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VTA_RPC_HOST", raising=False)


def test_a_whole_one_for_the_chip_is_sent(tmp_path: Path) -> None:
    program(tmp_path, made())


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (made(part=b"7a35tcpg236"), "is for the chip '7a35tcpg236', and this one is 7z020clg400"),
        (made()[:-1], "has 119 bytes of data, and its header says 120"),
        (made(length=10_000_000), "has 120 bytes of data, and its header says 10,000,000"),
        (made(data=b"\0" * 200), "no synchronisation word"),
        (made()[:30], "its header is damaged at byte 13, where its design should be"),
        (made().replace(b"e\0\0\0", b"f\0\0\0"), "where its data should be"),
        (b"\x7fELF", "is no bitstream"),
        (b"", "is no bitstream"),
    ],
)
def test_anything_else_is_refused_by_name(raw: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said) as refusal:
        program(tmp_path, raw)
    assert "1x16_i8w8a32_15_15_18_17.bit: " in refusal.value.message


def test_a_missing_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.bit: cannot be read"):
        vta.program_fpga(vta.connect(vta.get_env()), tmp_path / "missing.bit")


@given(st.integers(0, len(made())), st.binary(max_size=8))
def test_damage_anywhere_in_the_header_is_no_crash(at: int, instead: bytes) -> None:
    from tempfile import TemporaryDirectory

    raw = made()
    with TemporaryDirectory() as folder:
        try:
            program(Path(folder), raw[:at] + instead + raw[at + len(instead) :])
        except ConfigError as error:
            assert ".bit: " in error.message
