# SPDX-License-Identifier: Apache-2.0
"""The stock client uploads modules to boards that ``./inv board.serve`` serves, and they run there."""

import contextlib
import io
import json
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.tflite_reference import tflite_micro
from tests.session.raw_client import RawClient, opening
from tests.session.served import MODEL, Served, served
from tests.session.stock_modules import NUMBERS, exported, only_file
from utvm.compiler.package import package_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What clients upload."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module")
def modules(folder: Path) -> Callable[[str], Path]:
    """Returns a vector add of TVM's compiler for one of its targets."""
    made: dict[str, Path] = {}

    def get(target: str) -> Path:
        if target not in made:
            made[target] = exported(folder, target)
        return made[target]

    return get


@pytest.fixture(scope="module")
def package(folder: Path) -> Path:
    """The model that the boards are served with, as ``model.package`` writes it."""
    return package_model(MODEL, folder / "digits.tar")


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Served]]:
    """Returns a served board; their own files for clients are in the folder ``uploads`` beside the log."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        there: dict[str, Served] = {}

        def get(name: str) -> Served:
            if name not in there:
                place = tmp_path_factory.mktemp("serve")
                (place / "uploads").mkdir()
                patch.setenv("TMPDIR", str(place / "uploads"))
                there[name] = stack.enter_context(served(place, "--board", name))
                patch.delenv("TMPDIR")
            return there[name]

        yield get


@contextlib.contextmanager
def connected(board: Served) -> Iterator[Any]:
    from tvm import rpc

    session = rpc.connect(board.address, board.port)
    yield session
    session.get_function("CloseRPCConnection")()


def numbers() -> Any:
    return np.random.default_rng(7).standard_normal((2, NUMBERS)).astype("float32")


def tensors(remote: Any) -> list[Any]:
    import tvm

    a, b = numbers()
    return [tvm.runtime.tensor(array, remote.cpu()) for array in (a, b, np.zeros_like(a))]


def added(remote: Any, function: Any) -> bool:
    """Call a vector add, and return whether the sum is numpy's to the last bit."""
    operands = tensors(remote)
    function(*operands)
    a, b = numbers()
    return bool(np.array_equal(operands[2].numpy(), a + b))


@pytest.mark.parametrize(("board", "compiled"), [("host", "this_computer"), ("stm32f746", "cortex_m7")])
def test_stock_modules_and_a_package_of_ours_run(
    board: str,
    compiled: str,
    boards: Callable[[str], Served],
    modules: Callable[[str], Path],
    package: Path,
    folder: Path,
) -> None:
    import tvm

    at = boards(board)
    image = np.random.default_rng(3).integers(-128, 128, (1, 8, 8, 1), np.int8)
    (folder / f"{compiled}.o").write_bytes(only_file(modules(compiled)))
    with connected(at) as remote:
        # What the board was served with, as a session runs it.
        served_as = tvm.runtime.tensor(np.zeros((1, 10), np.int8), remote.cpu())
        remote.get_function("utvm.set_input")(0, tvm.runtime.tensor(image, remote.cpu()))
        remote.get_function("utvm.run")()
        remote.get_function("utvm.get_output")(0, served_as)
        expected = served_as.numpy()
        # AVX2 asks for tensors that are aligned: without it on this computer, there is nothing to see.
        vectors = [modules("vectors")] if board == "host" and " avx2 " in Path("/proc/cpuinfo").read_text() else []
        for file in (modules("c"), *vectors, folder / f"{compiled}.o"):
            remote.upload(str(file))
            module = remote.load_module(file.name)
            assert added(remote, module["main"])
            with pytest.raises(Exception, match=r"(?s)TypeError: Expected 3 arguments.*when calling"):
                module["main"](*tensors(remote)[:2])
            with pytest.raises(Exception, match="takes tensors and numbers"):
                module["main"](*tensors(remote)[:2], "text")
            with pytest.raises(Exception, match="has no model, but the functions of a module"):
                remote.get_function("utvm.run")()
            with pytest.raises(AttributeError, match="nope"):
                module["nope"]
        counts = module.time_evaluator("main", remote.cpu(), number=2, repeat=2)(*tensors(remote)).results
        remote.upload(str(package))
        module = remote.load_module("digits.tar")
        output = tvm.runtime.tensor(np.zeros((1, 10), np.int8), remote.cpu())
        module["main"](tvm.runtime.tensor(image, remote.cpu()), output)
        with pytest.raises(Exception, match=r"the model has int8\[1, 10\] there, the tensor is float32\[256\]"):
            module["main"](tvm.runtime.tensor(image, remote.cpu()), tensors(remote)[0])
        with pytest.raises(Exception, match="as many tensors as these are together: 2"):
            module["main"](output)
        got = output.numpy()
    ((golden,),) = tflite_micro(MODEL.read_bytes(), [[image]])
    assert got.tobytes() == expected.tobytes() == golden.tobytes()
    if board == "stm32f746":
        # Instructions, and nothing that could be taken for time.
        assert len(set(counts)) == 1
        assert counts[0] == int(counts[0]) > NUMBERS
        assert f"time_evaluator: {int(counts[0]):,}, {int(counts[0]):,} instructions of a VIRTUAL board" in at.output()
        assert "cortex_m7.o is on the board, in RAM" in at.output()
    # The next client finds what the board was served with, and nothing of the one before.
    with connected(at) as remote:
        assert json.loads(remote.get_function("utvm.stats")())["runs"] == 0
        assert remote.get_function("utvm.run")() > 0
        assert not list((at.log.parent / "uploads").iterdir())


def test_metaschedule_s_own_runner_measures_candidates(
    boards: Callable[[str], Served], modules: Callable[[str], Path]
) -> None:
    files = [str(modules("c")), str(modules("this_computer"))]
    runner = Path(__file__).with_name("stock_runner.py")
    done = subprocess.run(
        [sys.executable, runner, str(boards("host").port), str(NUMBERS), *files],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    measured = json.loads(done.stdout.splitlines()[-1])
    assert [len(run) for run in measured] == [3, 3], measured
    assert all(0 < seconds < 1 for run in measured for seconds in run)


def test_what_an_earlier_image_gave_away_is_refused_by_name(
    boards: Callable[[str], Served], modules: Callable[[str], Path], folder: Path, tmp_path: Path
) -> None:
    import tvm

    other = exported(tmp_path, "c", name="other").rename(folder / "other.tar")
    with connected(boards("host")) as remote:
        stats = remote.get_function("utvm.stats")
        remote.upload(str(modules("c")))
        first = remote.load_module("c.tar")
        before, function = tensors(remote), first["main"]
        timed = first.time_evaluator("main", remote.cpu(), number=1)
        remote.upload(str(other))
        second = remote.load_module("other.tar")
        now = tensors(remote)
        gone = r"main of c\.tar is gone: other\.tar was loaded since"
        with pytest.raises(Exception, match=gone):
            function(*now)
        with pytest.raises(Exception, match=gone):
            first["main"]
        with pytest.raises(Exception, match=gone):
            timed(*now)
        gone = r"an earlier tensor is gone: other\.tar was loaded since"
        with pytest.raises(Exception, match=gone):
            before[0].numpy()
        with pytest.raises(Exception, match=gone):
            second["other"](*before)
        # What every image has goes on, and so does the session.
        assert json.loads(stats())["board"] == "host"
        del before, function, timed, first
        assert added(remote, second["other"])
        again = remote.load_module("c.tar")
        assert added(remote, again["main"])
        assert tvm.runtime.tensor(np.arange(4), remote.cpu()).numpy().tolist() == [0, 1, 2, 3]


def _tar(**files: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name.replace("__", "."))
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


_C = (
    b"#include <stdint.h>\nextern int there(void);\n%s\n"
    b"int32_t __tvm_ffi_main(void *s, void *a, int32_t n, void *r) { %s }"
)


def test_impossible_request_is_one_error_and_the_board_goes_on(
    boards: Callable[[str], Served], modules: Callable[[str], Path], package: Path, folder: Path
) -> None:
    secret = folder / "secret.txt"
    secret.write_text("0x5EC4E7")
    huge = _C % (b"const char table[3 << 20] = {1};", b"return table[n];")
    packed = package.read_bytes()
    changed = packed.index(b"return 0;")
    cases: list[tuple[bytes, str]] = [
        (b"hello", "is not a module"),
        (b"\x7fELF" + bytes(60), "is a damaged object"),
        (only_file(modules("cortex_m7"))[:1500], "is a damaged object"),
        (only_file(modules("soft")), "another core: its floats go through those of integers, and the board's"),
        (modules("this_computer").read_bytes(), "lib0.o is for another core: X86_64 with 64 bits, and the board's is"),
        (modules("c").read_bytes()[:300], "is not a module"),
        (_tar(readme=b"nothing"), "has neither an object nor C"),
        (_tar(lib0__c=b"int other(void) { return 0; }"), "has no function that can be called"),
        (_tar(lib0__c=_C % (b"", b"return there();")), "needs symbols that the board lacks: there"),
        (_tar(lib0__c=_C % (b"void utvm_main(void) {}", b"return 0;")), "symbols of the firmware again: utvm_main"),
        (_tar(lib0__c=_C % (b"", b"return nonsense;")), "cannot be linked: 'nonsense' undeclared"),
        (_tar(lib0__c=huge), "region flash of stm32f746 has 1048576 bytes, the firmware needs"),
        (_tar(lib0__c=b'#include "%s"\n' % bytes(secret) + _C % (b"", b"return 0;")), "secret.txt: Permission denied"),
        (
            _tar(lib0__c=_C % (b'__asm__(".incbin \\"%s\\"");' % bytes(secret), b"return 0;")),
            "cannot be linked: file not found: .*secret.txt",
        ),
        (_tar(metadata__json=b"{"), "metadata.json is not JSON"),
        (_tar(metadata__json=b'{"version": 7}'), "metadata.json: .*required"),
        (packed[:changed] + b"return 1;" + packed[changed + 9 :], "was changed since"),
    ]
    at = boards("stm32f746")
    with connected(at) as remote:
        stats = remote.get_function("utvm.stats")
        for number, (data, words) in enumerate(cases):
            remote.upload(bytearray(data), f"case{number}")
            with pytest.raises(Exception, match=words) as error:
                remote.load_module(f"case{number}")
            assert "5EC4E7" not in str(error.value)
            assert json.loads(stats())["board"] == "stm32f746"
            remote.remove(f"case{number}")
        for name in ("../up", "..", ".", "a/b", "/etc/x", "x" * 129, "new\nline"):
            with pytest.raises(Exception, match="is not a file name"):
                remote.upload(bytearray(b"x"), name)
        with pytest.raises(Exception, match=r"none\.tar was not uploaded"):
            remote.load_module("none.tar")
        with pytest.raises(Exception, match=r"a packet of 16777[0-9]+ bytes is too long"):
            remote.upload(bytearray(1 << 24), "long")
        with pytest.raises(Exception, match="a session has at most 64 files of 67108864 bytes together"):
            for number in range(65):
                remote.upload(bytearray(b"x"), f"file{number}")
        remote.remove("")
        with pytest.raises(Exception, match="file0 was not uploaded"):
            remote.load_module("file0")
        remote.upload(str(modules("cortex_m7")))
        assert added(remote, remote.load_module("cortex_m7.tar")["main"])
    assert not [path for path in (at.log.parent).rglob("up") if path.name == "up"]


def test_random_numbers_are_of_the_tensor_s_type(boards: Callable[[str], Served]) -> None:
    import tvm

    with connected(boards("host")) as remote:
        fill = remote.get_function("tvm.contrib.random.random_fill_for_measure")
        for dtype, lowest, highest in (("float32", 1, 10), ("float16", 1, 10), ("int8", -128, 127), ("bool", 0, 1)):
            tensor = tvm.runtime.empty((50, 60), dtype, remote.cpu())
            fill(tensor)
            found = tensor.numpy().astype("float64")
            assert lowest <= found.min() < found.max() <= highest
            assert len(np.unique(found)) > 100 or dtype == "bool"
        with pytest.raises(Exception, match="takes a tensor"):
            fill(3)


def test_broken_packets_about_files_are_refused(boards: Callable[[str], Served]) -> None:
    with RawClient(boards("host").port, boards("host").key).greet() as client:
        client.ask(opening())
        (upload,) = struct.unpack_from("<Q", client.ask(_named(9, b"tvm.rpc.server.upload")), 12)
        call = struct.pack("<iQ", 3, upload)
        for rest in (b"", struct.pack("<i", 2), struct.pack("<iiQ", 1, 8, 1 << 40), struct.pack("<iiq", 1, 1, 5)):
            assert b"takes a file's name, and bytes" in client.ask(call + rest) or b"no name" in client.ask(call + rest)
        # A mark of an image that has not been there is nobody's.
        assert b"its handle has been freed" in client.ask(struct.pack("<iQi", 3, 9 << 48 | 1, 0))


def _named(code: int, name: bytes) -> bytes:
    return struct.pack("<iiiQ", code, 1, 8, len(name)) + name


def test_a_process_runs_nobody_s_modules_but_this_computer_s(tmp_path: Path, modules: Callable[[str], Path]) -> None:
    with served(tmp_path, "--board", "host", "--listen", "0.0.0.0", "--anyone") as board, connected(board) as remote:
        remote.upload(str(modules("c")))
        with pytest.raises(Exception, match="runs on this computer, and anybody may connect"):
            remote.load_module("c.tar")
