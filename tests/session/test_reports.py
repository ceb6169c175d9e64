# SPDX-License-Identifier: Apache-2.0
"""Reports of standalone firmware: complete ones are read, and damaged ones never."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utvm.paths import ROOT
from utvm.session.standalone import FaultReport, Report, ReportReader, ResultReport

BOOT = b"utvm: stm32f746 is up\r\n"


def _hex_lines(data: bytes) -> str:
    return "".join(f"utvm: data {data[start : start + 32].hex()}\r\n" for start in range(0, len(data), 32))


def _encode(report: Report) -> bytes:
    """Return a report's bytes, as the documentation defines them."""
    if isinstance(report, FaultReport):
        text = f"utvm: fault {len(report.record):08x}\r\n{_hex_lines(report.record)}"
        text += f"utvm: trace {len(report.trace):08x}\r\n{_hex_lines(report.trace)}"
    else:
        text = (
            f"utvm: result {report.model}\r\nutvm: reset {report.reset_cause}\r\n"
            f"utvm: status {report.status & 0xFFFFFFFF:08x}\r\nutvm: cycles {report.cycles:016x}\r\n"
            f"utvm: stack {report.stack_used:08x}\r\n"
        )
        text += "".join(f"utvm: output {len(data):08x}\r\n{_hex_lines(data)}" for data in report.outputs)
    return text.encode() + b"utvm: end %08x\r\n" % zlib.crc32(text.encode())


_RESULTS = st.builds(
    ResultReport,
    st.from_regex(r"[a-z_][a-z0-9_]{0,20}", fullmatch=True),
    st.sampled_from(["power on", "reset pin"]),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.lists(st.binary(max_size=100), max_size=3).map(tuple),
)
_REPORTS: st.SearchStrategy[Report] = st.one_of(
    _RESULTS, st.builds(FaultReport, st.binary(max_size=120), st.binary(max_size=70))
)
_NOISE = st.binary(max_size=40).filter(lambda noise: b"utvm" not in noise)


def test_example_of_the_documentation_is_a_report() -> None:
    text = (ROOT / "docs" / "standing-alone.md").read_text(encoding="utf-8")
    (example,) = (block for block in text.split("```") if block.startswith("\nutvm: "))
    outputs = (bytes.fromhex("0ae2fbfff1f0e3d004f0"),)
    assert ReportReader().feed(example.replace("\n", "\r\n").encode()) == [
        ResultReport("digits_int8", "power on", 0, 137_200, 408, outputs)
    ]


@pytest.mark.slow
@given(st.lists(_REPORTS, max_size=3), _NOISE, st.data())
def test_reports_are_found_in_divided_bytes(reports: list[Report], noise: bytes, data: st.DataObject) -> None:
    line = b"".join(noise + b"\n" + BOOT + _encode(report) for report in reports) + noise
    reader = ReportReader()
    result: list[Report] = []
    while line:
        size = data.draw(st.integers(1, len(line)))
        result += reader.feed(line[:size])
        line = line[size:]
    assert result == reports
    assert reader.damaged == 0


@st.composite
def _damage(draw: st.DrawFn, line: bytes) -> bytes:
    """Lose, change, double or insert bytes anywhere: random ones, or plausible ones."""
    start = draw(st.integers(0, len(line) - 1))
    end = draw(st.one_of(st.integers(start + 1, len(line)), st.just(min(start + 2, len(line)))))
    digits = st.text("0123456789abcdef", min_size=end - start, max_size=end - start).map(str.encode)
    doubled = st.just(line[start:end] * 2)
    replacement = draw(st.one_of(st.binary(max_size=end - start), digits, doubled, st.just(BOOT), st.just(b"")))
    return line[:start] + replacement + line[end:]


@given(_REPORTS, st.data())
def test_damaged_report_is_never_accepted(report: Report, data: st.DataObject) -> None:
    original = BOOT + _encode(report)
    line = original
    for _ in range(data.draw(st.integers(1, 3))):
        line = data.draw(_damage(line)) or line
    # The result is the sent report, if only the line before it was damaged, or nothing.
    assert all(result == report for result in ReportReader().feed(line))


@given(_RESULTS, st.data())
def test_wrong_bit_in_a_report_is_noticed(report: ResultReport, data: st.DataObject) -> None:
    line = bytearray(_encode(report))
    bit = data.draw(st.integers(0, 8 * len(line) - 1))
    line[bit // 8] ^= 1 << bit % 8
    assert not ReportReader().feed(bytes(line))


@given(_RESULTS, _REPORTS, st.data())
def test_second_start_leaves_only_its_own_report(first: ResultReport, second: Report, data: st.DataObject) -> None:
    first_report = _encode(first)
    length = data.draw(st.integers(0, len(first_report) - len("\r\n") - 1))
    reader = ReportReader()
    assert reader.feed(first_report[:length] + b"\r\n" + BOOT + _encode(second)) == [second]


def test_end_of_another_report_does_not_fit() -> None:
    first = ResultReport("m", "power on", 0, 1, 2, (b"abc",))
    second = ResultReport("m", "power on", 0, 1, 2, (b"abd",))
    head, tail = _encode(first), _encode(second)
    reader = ReportReader()
    assert not reader.feed(head[: head.index(b"utvm: end")] + tail[tail.index(b"utvm: end") :])
    assert reader.damaged == 1


@pytest.mark.parametrize(
    "content",
    [
        b"utvm: result m\r\n",
        b"utvm: fault 00000000\r\n",
        b"utvm: fault 00000004\r\nutvm: data 0102\r\nutvm: trace 00000000\r\n",
        b"utvm: fault 00000001\r\nutvm: data 1\r\nutvm: trace 00000000\r\n",
        b"utvm: result m\r\nutvm: reset x\r\nutvm: status 0000000G\r\nutvm: cycles 0000000000000000\r\n"
        b"utvm: stack 00000000\r\n",
    ],
)
def test_correct_checksum_does_not_make_a_report(content: bytes) -> None:
    assert not ReportReader().feed(content + b"utvm: end %08x\r\n" % zlib.crc32(content))
