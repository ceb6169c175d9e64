# SPDX-License-Identifier: Apache-2.0
"""The RPC server under libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer."""

import struct
import subprocess
from pathlib import Path

import pytest

from tests.runtime.conftest import FLAGS
from utvm.runtime import DIRECTORY
from utvm.session.framing import encode

_EXCLUDED = {"main.c"}  # It waits for a board.


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("fuzzer") / "fuzz_server"
    sources = [path for path in sorted((DIRECTORY / "rpc").glob("*.c")) if path.name not in _EXCLUDED]
    subprocess.run(
        [
            "clang",
            *FLAGS,
            *["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"],
            *['-DUTVM_BOARD_NAME="fuzzed"', "-DUTVM_CLOCK_HZ=1000000u"],
            *[
                "-o",
                program,
                *sources,
                DIRECTORY / "run.c",
                DIRECTORY / "profile.c",
                Path(__file__).with_name("fuzz_server.c"),
            ],
        ],
        check=True,
    )
    return program


def _requests(*packets: bytes) -> bytes:
    return b"\x01" + b"".join(struct.pack("<H", len(packet)) + packet for packet in packets)


def _wire(*payloads: bytes) -> bytes:
    return b"\x00" + b"".join(map(encode, payloads))


def _function(name: bytes) -> bytes:
    return struct.pack("<iiiQ", 9, 1, 8, len(name)) + name


_BEGIN = struct.pack("<iQ", 2, 5) + b"0.8.0" + struct.pack("<i", 0)
_DEVICE = struct.pack("<iii", 6, 1, 0)
_ALLOCATE = struct.pack("<ii", 13, 4) + _DEVICE + struct.pack("<iqiqiBBHi", 1, 16, 1, 64, 5, 0, 8, 1, 0)
_EVALUATE = (
    struct.pack("<iQii", 3, 7, 12, 0)
    + struct.pack("<iQ", 8, 8)
    + b"utvm.run"
    + b"".join(struct.pack("<iq", 1, number) for number in (1, 0, 2, 2, 0, 0, 0, 0, 0))
    + struct.pack("<iQ", 8, 0)
)


def _seeds() -> list[bytes]:
    """Complete conversations, the fuzzer's first inputs."""
    names = [
        b"utvm.run",
        b"utvm.stats",
        b"utvm.set_input",
        b"utvm.get_output",
        b"utvm.put",
        b"utvm.take",
        b"flip",
        b"sum",
        b"main",
        b"ffi.SystemLib",
    ]
    calls = [struct.pack("<iQi", 3, handle, 0) for handle in range(1, 19)]
    evaluator = _function(b"runtime.RPCTimeEvaluator")
    normal = [struct.pack("<HBQ", 0x0101, 0x10, len(packet)) + packet for packet in (_BEGIN, _ALLOCATE)]
    numbered = [struct.pack("<HBBQ", 0x0101, 0x11, 1, len(_BEGIN)) + _BEGIN] * 2
    span = struct.pack("<iqiq", 1, 0, 1, 4)
    put = struct.pack("<iQi", 3, 10, 3) + span + struct.pack("<iQ", 9, 8) + bytes(8)
    take = struct.pack("<iQi", 3, 11, 3) + span + struct.pack("<iq", 1, 8)
    return [
        _requests(_BEGIN, *map(_function, names), put, struct.pack("<iQi", 3, 3, 0), take),
        _requests(_BEGIN, *map(_function, names), *calls),
        _requests(_BEGIN, _ALLOCATE, _ALLOCATE, _ALLOCATE),
        _requests(_BEGIN, evaluator, _EVALUATE, struct.pack("<iQi", 3, 0x10000, 0)),
        _wire(struct.pack("<HB", 1, 0), *normal, *numbered, struct.pack("<HB", 0x0101, 2)),
    ]


@pytest.mark.parametrize(
    "seconds", [pytest.param(8, marks=pytest.mark.slow), pytest.param(600, marks=pytest.mark.nightly)]
)
def test_fuzzed_requests_cause_no_errors(fuzzer: Path, tmp_path: Path, seconds: int) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(_seeds()):
        (corpus / str(number)).write_bytes(seed)
    completed = subprocess.run(
        [
            fuzzer,
            f"-max_total_time={seconds}",
            "-timeout=20",
            "-rss_limit_mb=1024",
            "-max_len=4096",
            "-print_final_stats=1",
            f"-artifact_prefix={tmp_path}/",
            corpus,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + 300,
    )
    assert completed.returncode == 0, completed.stderr[-4000:]
    executed = int(completed.stderr.split("stat::number_of_executed_units:")[1].split()[0])
    assert executed > 100 * seconds, "the fuzzer hardly ran"


@pytest.mark.slow
def test_fuzzer_covers_valid_requests(fuzzer: Path, tmp_path: Path) -> None:
    """A seed with a valid request covers more code than one with an invalid request."""

    def features(content: bytes) -> int:
        seed = tmp_path / "seed"
        seed.write_bytes(content)
        output = subprocess.run([fuzzer, "-runs=1", seed], capture_output=True, text=True, check=True).stderr
        assert "Executed" in output
        coverage = subprocess.run(
            [fuzzer, "-runs=0", "-print_coverage=0", tmp_path], capture_output=True, text=True, check=True
        ).stderr
        return int(coverage.split("cov: ")[1].split()[0])

    rubbish = features(_requests(b"\x63\0\0\0"))
    assert features(_seeds()[2]) > rubbish + 20
