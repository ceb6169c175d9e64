# SPDX-License-Identifier: Apache-2.0
"""Package files: content that differs from the lock is an error, and leaves nothing behind."""

import http.server
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.environment.lock_maker import deb, files_in, wheel
from tests.processes import may_make_mounts
from utvm.environment.locked import Store
from utvm.errors import ProvisionError
from utvm.paths import ROOT


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def _put(store: Store, folder: Path, content: bytes, name: str = "one") -> Path:
    file = folder / "arriving.deb"
    file.write_bytes(content)
    store.add(file, deb(name, content=content))
    return store.path(deb(name, content=content).sha256)


def test_file_is_stored_by_its_content(store: Store, tmp_path: Path) -> None:
    path = _put(store, tmp_path, b"content")
    assert path.read_bytes() == b"content"
    assert store.verify(deb("one", content=b"content")) == path
    assert files_in(store.directory) == [path.relative_to(store.directory).as_posix()]


def test_wrong_content_is_refused(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "arriving.deb"
    file.write_bytes(b"tampered")
    with pytest.raises(ProvisionError, match="another SHA-256 than the lock says"):
        store.add(file, deb("one", content=b"content"))
    assert files_in(store.directory) == []


def test_damaged_file_is_removed(store: Store, tmp_path: Path) -> None:
    path = _put(store, tmp_path, b"content")
    path.write_bytes(b"contend")
    with pytest.raises(ProvisionError, match="damaged"):
        store.verify(deb("one", content=b"content"))
    assert not path.exists()


@pytest.mark.parametrize("damaged", [False, True])
def test_archive_is_verified_during_the_copy(store: Store, tmp_path: Path, damaged: bool) -> None:
    archive = Store(tmp_path / "archive")
    path = _put(archive, tmp_path, b"content")
    package = deb("one", content=b"content")
    if damaged:
        path.write_bytes(b"contend")
        with pytest.raises(ProvisionError, match="damaged"):
            archive.copy([package], store)
        assert files_in(store.directory) == []
    else:
        assert archive.copy([package], store) == 1
        assert archive.copy([package], store) == 0
        assert store.verify(package).read_bytes() == b"content"


@contextmanager
def _mirror(files: dict[str, bytes], length: int | None = None) -> Iterator[str]:
    """Serve files by the last part of their path; ``length``, if given, is the declared length."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files.get(urllib.parse.unquote(self.path.rpartition("/")[2]))
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(length or len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/debian"
        finally:
            server.shutdown()
            thread.join()


def test_files_are_fetched_from_a_mirror(store: Store) -> None:
    packages = [deb("one", content=b"first"), deb("two", "2:1.0+b1", content=b"second")]
    files = {"one_1.0-1_amd64.deb": b"first", "two_2:1.0+b1_amd64.deb": b"second"}
    with _mirror(files) as base:
        store.fetch_debian(packages, {"debian": base})
    assert [store.verify(package).read_bytes() for package in packages] == [b"first", b"second"]
    # Once all files are stored, the mirror is not used.
    store.fetch_debian(packages, {"debian": "http://127.0.0.1:1"})


@pytest.mark.parametrize(
    ("content", "length", "message"),
    [
        (b"tampered!", None, "Hash Sum mismatch|unexpected size"),
        # apt repeats this several times.
        pytest.param(b"first", 4000, "packages cannot be fetched", marks=pytest.mark.slow),
        (None, None, "404"),
    ],
    ids=["tampered", "cut off", "not there"],
)
def test_wrong_file_of_a_mirror_is_an_error(
    store: Store, content: bytes | None, length: int | None, message: str
) -> None:
    good, bad = deb("good", content=b"good"), deb("one", content=b"first one")
    files = {"good_1.0-1_amd64.deb": b"good"}
    if content is not None:
        files["one_1.0-1_amd64.deb"] = content
    with _mirror(files, length) as base, pytest.raises(ProvisionError, match=message) as caught:
        store.fetch_debian([good, bad], {"debian": base})
    assert "--mirror" in caught.value.hint
    assert not store.has(bad)
    assert not [name for name in files_in(store.directory) if ".draft-" in name]


_ONTO_A_SMALL_DISK = """
import sys
from pathlib import Path
from tests.environment.lock_maker import deb
from utvm.environment.locked import Store
from utvm.errors import ProvisionError
try:
    Store(Path(sys.argv[1])).fetch_debian([deb("one", content=b"x" * 1_000_000)], {"debian": sys.argv[2]})
except ProvisionError as error:
    print(error)
print(*Path(sys.argv[1]).iterdir())
"""


@pytest.mark.slow
@pytest.mark.skipif(not may_make_mounts(), reason="this machine lacks the right to mount, to make a small disk")
def test_full_disk_is_not_an_error_of_the_mirror(tmp_path: Path) -> None:
    with _mirror({"one_1.0-1_amd64.deb": b"x" * 1_000_000}) as base:
        script = 'mount -t tmpfs -o size=256k none "$1" && exec "$0" -c "$3" "$1" "$2"'
        completed = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, sys.executable, tmp_path, base, _ONTO_A_SMALL_DISK],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    message, hint, files = completed.stdout.split("\n")[:3]
    assert message == f"{tmp_path}: the disk is full (0 MB free)"
    assert "XDG_CACHE_HOME" in hint
    assert files == ""


@pytest.mark.slow
def test_unreachable_mirror_is_named(store: Store) -> None:
    with pytest.raises(ProvisionError, match=r"127\.0\.0\.1:1 ") as caught:
        store.fetch_debian([deb("one")], {"debian": "http://127.0.0.1:1/debian"})
    assert "--mirror" in caught.value.hint
    assert files_in(store.directory) == []


def test_archive_with_named_wheels_may_be_moved(tmp_path: Path) -> None:
    store, package = Store(tmp_path / "archive"), wheel("one")
    (tmp_path / "file").write_text("one 1.0")
    store.add(tmp_path / "file", package)
    # Twice, as for an archive that is extended.
    for _ in range(2):
        store.name_wheels([package], tmp_path / "archive" / "wheels")
    (tmp_path / "archive").rename(tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "wheels" / package.file).read_text() == "one 1.0"
