# SPDX-License-Identifier: Apache-2.0
"""``vta.encode`` and ``vta.decode``: lines to bytes and back."""

from pathlib import Path

from tests.cli.running import inv

LINES = """\
uop dst_idx=301 src_idx=1135 wgt_idx=999
load mem=INP sram=0 dram=256 y_size=1 x_size=64 x_stride=64 ypad0=0 ypad1=0 xpad0=0 xpad1=0
finish
"""


def test_lines_become_bytes_and_bytes_lines(tmp_path: Path) -> None:
    lines, encoded, decoded = (tmp_path / name for name in ("lines.txt", "encoded.txt", "decoded.txt"))
    lines.write_text(LINES)
    done = inv("vta.encode", "--input", lines, "--output", encoded)
    assert done.returncode == 0, done.stderr
    first, second, last = encoded.read_text().splitlines()
    assert first == "uop dst_idx=301 src_idx=1135 wgt_idx=999 | 2d79e3f9"
    assert second.endswith("| 00010000040000000100400040000000")
    assert last == f"finish | 03{'00' * 15}"
    assert inv("vta.decode", "--input", encoded, "--output", decoded).returncode == 0
    assert decoded.read_text() == LINES


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("finish\n\ngemm iter_in=16384\n")
    done = inv("vta.encode", "--input", lines, "--output", tmp_path / "out.txt")
    assert done.returncode == 2
    assert f"{lines}:3: gemm: iter_in=16384 is not in 0..16383" in done.stderr
