# SPDX-License-Identifier: Apache-2.0
"""The stock client uploads modules to boards that ``./inv board.serve`` serves, and runs them there."""

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
from tests.session.board_server import MODEL, BoardServer, serve_board
from tests.session.raw_client import RawClient, init_packet
from tests.session.stock_modules import NUMBERS, export_module, read_only_file
from utvm.compiler.package import package_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of files that clients upload."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module")
def modules(folder: Path) -> Callable[[str], Path]:
    """Return a function that compiles a vector add with TVM for one of its targets."""
    paths: dict[str, Path] = {}

    def get(target: str) -> Path:
        if target not in paths:
            paths[target] = export_module(folder, target)
        return paths[target]

    return get


@pytest.fixture(scope="module")
def package(folder: Path) -> Path:
    """The package of the model that the boards are served with, as ``model.package`` writes it."""
    return package_model(MODEL, folder / "digits.tar")


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], BoardServer]]:
    """Return a function that serves a board; the server's files of clients are in ``uploads`` beside its log."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        servers: dict[str, BoardServer] = {}

        def get(name: str) -> BoardServer:
            if name not in servers:
                location = tmp_path_factory.mktemp("serve")
                (location / "uploads").mkdir()
                patch.setenv("TMPDIR", str(location / "uploads"))
                servers[name] = stack.enter_context(serve_board(location, "--board", name))
                patch.delenv("TMPDIR")
            return servers[name]

        yield get


@contextlib.contextmanager
def connect(board: BoardServer) -> Iterator[Any]:
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


def adds_correctly(remote: Any, function: Any) -> bool:
    """Call a vector add, and return whether the sum equals numpy's to the last bit."""
    operands = tensors(remote)
    function(*operands)
    a, b = numbers()
    return bool(np.array_equal(operands[2].numpy(), a + b))


@pytest.mark.parametrize(("board", "compiled"), [("host", "this_computer"), ("stm32f746", "cortex_m7")])
def test_stock_modules_and_packages_of_utvm_run(
    board: str,
    compiled: str,
    boards: Callable[[str], BoardServer],
    modules: Callable[[str], Path],
    package: Path,
    folder: Path,
) -> None:
    import tvm

    server = boards(board)
    image = np.random.default_rng(3).integers(-128, 128, (1, 8, 8, 1), np.int8)
    (folder / f"{compiled}.o").write_bytes(read_only_file(modules(compiled)))
    with connect(server) as remote:
        # The model that the board is served with.
        served_output = tvm.runtime.tensor(np.zeros((1, 10), np.int8), remote.cpu())
        remote.get_function("utvm.set_input")(0, tvm.runtime.tensor(image, remote.cpu()))
        remote.get_function("utvm.run")()
        remote.get_function("utvm.get_output")(0, served_output)
        expected = served_output.numpy()
        # AVX2 needs aligned tensors; a computer without it cannot test that.
        vectors = [modules("vectors")] if board == "host" and " avx2 " in Path("/proc/cpuinfo").read_text() else []
        for file in (modules("c"), *vectors, folder / f"{compiled}.o"):
            remote.upload(str(file))
            module = remote.load_module(file.name)
            assert adds_correctly(remote, module["main"])
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
        actual = output.numpy()
    ((reference,),) = tflite_micro(MODEL.read_bytes(), [[image]])
    assert actual.tobytes() == expected.tobytes() == reference.tobytes()
    if board == "stm32f746":
        # The counts are instructions, and no times.
        assert len(set(counts)) == 1
        assert counts[0] == int(counts[0]) > NUMBERS
        assert (
            f"time_evaluator: {int(counts[0]):,}, {int(counts[0]):,} instructions of a VIRTUAL board" in server.output()
        )
        assert "cortex_m7.o is on the board, in RAM" in server.output()
    # The next client gets the served model, and nothing of the client before.
    with connect(server) as remote:
        assert json.loads(remote.get_function("utvm.stats")())["runs"] == 0
        assert remote.get_function("utvm.run")() > 0
        assert not list((server.log.parent / "uploads").iterdir())


def test_metaschedules_own_runner_measures_candidates(
    boards: Callable[[str], BoardServer], modules: Callable[[str], Path]
) -> None:
    files = [str(modules("c")), str(modules("this_computer"))]
    runner = Path(__file__).with_name("stock_runner.py")
    completed = subprocess.run(
        [sys.executable, runner, str(boards("host").port), str(NUMBERS), *files],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    measured = json.loads(completed.stdout.splitlines()[-1])
    assert [len(run) for run in measured] == [3, 3], measured
    assert all(0 < seconds < 1 for run in measured for seconds in run)


def test_handles_of_an_earlier_image_are_refused_by_name(
    boards: Callable[[str], BoardServer], modules: Callable[[str], Path], folder: Path, tmp_path: Path
) -> None:
    import tvm

    other = export_module(tmp_path, "c", name="other").rename(folder / "other.tar")
    with connect(boards("host")) as remote:
        stats = remote.get_function("utvm.stats")
        remote.upload(str(modules("c")))
        first = remote.load_module("c.tar")
        earlier, function = tensors(remote), first["main"]
        timed = first.time_evaluator("main", remote.cpu(), number=1)
        remote.upload(str(other))
        second = remote.load_module("other.tar")
        later = tensors(remote)
        message = r"main of c\.tar is gone: other\.tar was loaded since"
        with pytest.raises(Exception, match=message):
            function(*later)
        with pytest.raises(Exception, match=message):
            first["main"]
        with pytest.raises(Exception, match=message):
            timed(*later)
        message = r"an earlier tensor is gone: other\.tar was loaded since"
        with pytest.raises(Exception, match=message):
            earlier[0].numpy()
        with pytest.raises(Exception, match=message):
            second["other"](*earlier)
        # Functions of every image remain, and so does the session.
        assert json.loads(stats())["board"] == "host"
        del earlier, function, timed, first
        assert adds_correctly(remote, second["other"])
        again = remote.load_module("c.tar")
        assert adds_correctly(remote, again["main"])
        assert tvm.runtime.tensor(np.arange(4), remote.cpu()).numpy().tolist() == [0, 1, 2, 3]


def _archive(**files: bytes) -> bytes:
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


def test_impossible_request_is_one_error_and_the_board_continues(
    boards: Callable[[str], BoardServer], modules: Callable[[str], Path], package: Path, folder: Path
) -> None:
    secret = folder / "secret.txt"
    secret.write_text("0x5EC4E7")
    huge = _C % (b"const char table[3 << 20] = {1};", b"return table[n];")
    content = package.read_bytes()
    position = content.index(b"return 0;")
    cases: list[tuple[bytes, str]] = [
        (b"hello", "is not a module"),
        (b"\x7fELF" + bytes(60), "is a damaged object"),
        (read_only_file(modules("cortex_m7"))[:1500], "is a damaged object"),
        (read_only_file(modules("soft")), "another core: its floats go through those of integers, and the board's"),
        (modules("this_computer").read_bytes(), "lib0.o is for another core: X86_64 with 64 bits, and the board's is"),
        (modules("c").read_bytes()[:300], "is not a module"),
        (_archive(readme=b"nothing"), "has neither an object nor C"),
        (_archive(lib0__c=b"int other(void) { return 0; }"), "has no function that can be called"),
        (_archive(lib0__c=_C % (b"", b"return there();")), "needs symbols that the board lacks: there"),
        (_archive(lib0__c=_C % (b"void utvm_main(void) {}", b"return 0;")), "symbols of the firmware again: utvm_main"),
        (_archive(lib0__c=_C % (b"", b"return nonsense;")), "cannot be linked: 'nonsense' undeclared"),
        (_archive(lib0__c=huge), "region flash of stm32f746 has 1048576 bytes, the firmware needs"),
        (
            _archive(lib0__c=b'#include "%s"\n' % bytes(secret) + _C % (b"", b"return 0;")),
            "secret.txt: Permission denied",
        ),
        (
            _archive(lib0__c=_C % (b'__asm__(".incbin \\"%s\\"");' % bytes(secret), b"return 0;")),
            "cannot be linked: file not found: .*secret.txt",
        ),
        (_archive(metadata__json=b"{"), "metadata.json is not JSON"),
        (_archive(metadata__json=b'{"version": 7}'), "metadata.json: .*required"),
        (content[:position] + b"return 1;" + content[position + 9 :], "was changed since"),
    ]
    server = boards("stm32f746")
    with connect(server) as remote:
        stats = remote.get_function("utvm.stats")
        for number, (data, message) in enumerate(cases):
            remote.upload(bytearray(data), f"case{number}")
            with pytest.raises(Exception, match=message) as error:
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
        assert adds_correctly(remote, remote.load_module("cortex_m7.tar")["main"])
    assert not [path for path in (server.log.parent).rglob("up") if path.name == "up"]


def test_random_numbers_have_the_tensors_type(boards: Callable[[str], BoardServer]) -> None:
    import tvm

    with connect(boards("host")) as remote:
        fill = remote.get_function("tvm.contrib.random.random_fill_for_measure")
        for dtype, lowest, highest in (("float32", 1, 10), ("float16", 1, 10), ("int8", -128, 127), ("bool", 0, 1)):
            tensor = tvm.runtime.empty((50, 60), dtype, remote.cpu())
            fill(tensor)
            values = tensor.numpy().astype("float64")
            assert lowest <= values.min() < values.max() <= highest
            assert len(np.unique(values)) > 100 or dtype == "bool"
        with pytest.raises(Exception, match="takes a tensor"):
            fill(3)


def test_damaged_packets_about_files_are_refused(boards: Callable[[str], BoardServer]) -> None:
    with RawClient(boards("host").port, boards("host").key).greet() as client:
        client.request(init_packet())
        (upload,) = struct.unpack_from("<Q", client.request(_name_packet(9, b"tvm.rpc.server.upload")), 12)
        call = struct.pack("<iQ", 3, upload)
        for rest in (b"", struct.pack("<i", 2), struct.pack("<iiQ", 1, 8, 1 << 40), struct.pack("<iiq", 1, 1, 5)):
            assert b"takes a file's name, and bytes" in client.request(call + rest) or b"no name" in client.request(
                call + rest
            )
        # A handle of an image that was never loaded belongs to no function.
        assert b"its handle has been freed" in client.request(struct.pack("<iQi", 3, 9 << 48 | 1, 0))


def _name_packet(code: int, name: bytes) -> bytes:
    return struct.pack("<iiiQ", code, 1, 8, len(name)) + name


def test_process_runs_modules_of_this_computer_only(tmp_path: Path, modules: Callable[[str], Path]) -> None:
    with serve_board(tmp_path, "--board", "host", "--listen", "0.0.0.0", "--anyone") as board, connect(board) as remote:
        remote.upload(str(modules("c")))
        with pytest.raises(Exception, match="runs on this computer, and anybody may connect"):
            remote.load_module("c.tar")
