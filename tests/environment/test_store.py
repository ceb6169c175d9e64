# SPDX-License-Identifier: Apache-2.0
"""Package files: what is not what the lock says stops everything, and leaves nothing behind."""

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


def test_a_file_is_kept_by_its_content(store: Store, tmp_path: Path) -> None:
    path = _put(store, tmp_path, b"content")
    assert path.read_bytes() == b"content"
    assert store.verify(deb("one", content=b"content")) == path
    assert files_in(store.directory) == [path.relative_to(store.directory).as_posix()]


def test_another_content_is_refused(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "arriving.deb"
    file.write_bytes(b"tampered")
    with pytest.raises(ProvisionError, match="another SHA-256 than the lock says"):
        store.add(file, deb("one", content=b"content"))
    assert files_in(store.directory) == []


def test_a_file_that_rots_is_found_and_removed(store: Store, tmp_path: Path) -> None:
    path = _put(store, tmp_path, b"content")
    path.write_bytes(b"contend")
    with pytest.raises(ProvisionError, match="damaged"):
        store.verify(deb("one", content=b"content"))
    assert not path.exists()


@pytest.mark.parametrize("rotten", [False, True])
def test_an_archive_is_checked_as_it_is_read(store: Store, tmp_path: Path, rotten: bool) -> None:
    archive = Store(tmp_path / "archive")
    path = _put(archive, tmp_path, b"content")
    package = deb("one", content=b"content")
    if rotten:
        path.write_bytes(b"contend")
        with pytest.raises(ProvisionError, match="damaged"):
            archive.copy([package], store)
        assert files_in(store.directory) == []
    else:
        assert archive.copy([package], store) == 1
        assert archive.copy([package], store) == 0
        assert store.verify(package).read_bytes() == b"content"


@contextmanager
def _mirror(answers: dict[str, bytes], length: int | None = None) -> Iterator[str]:
    """Serve files by the last part of their path; ``length`` is what is said of each, true or not."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = answers.get(urllib.parse.unquote(self.path.rpartition("/")[2]))
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


def test_a_mirror_s_files_arrive(store: Store) -> None:
    packages = [deb("one", content=b"first"), deb("two", "2:1.0+b1", content=b"second")]
    answers = {"one_1.0-1_amd64.deb": b"first", "two_2:1.0+b1_amd64.deb": b"second"}
    with _mirror(answers) as base:
        store.fetch_debian(packages, {"debian": base})
    assert [store.verify(package).read_bytes() for package in packages] == [b"first", b"second"]
    # With all of them there, the mirror is not asked.
    store.fetch_debian(packages, {"debian": "http://127.0.0.1:1"})


@pytest.mark.parametrize(
    ("content", "length", "said"),
    [
        (b"tampered!", None, "Hash Sum mismatch|unexpected size"),
        # apt tries again some times.
        pytest.param(b"first", 4000, "packages cannot be fetched", marks=pytest.mark.slow),
        (None, None, "404"),
    ],
    ids=["tampered", "cut off", "not there"],
)
def test_a_mirror_s_wrong_file_stops_it(store: Store, content: bytes | None, length: int | None, said: str) -> None:
    good, bad = deb("good", content=b"good"), deb("one", content=b"first one")
    answers = {"good_1.0-1_amd64.deb": b"good"}
    if content is not None:
        answers["one_1.0-1_amd64.deb"] = content
    with _mirror(answers, length) as base, pytest.raises(ProvisionError, match=said) as caught:
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
def test_a_disk_that_becomes_full_is_not_the_mirror_s_fault(tmp_path: Path) -> None:
    with _mirror({"one_1.0-1_amd64.deb": b"x" * 1_000_000}) as base:
        small = 'mount -t tmpfs -o size=256k none "$1" && exec "$0" -c "$3" "$1" "$2"'
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", small, sys.executable, tmp_path, base, _ONTO_A_SMALL_DISK],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    said, hint, left = done.stdout.split("\n")[:3]
    assert said == f"{tmp_path}: the disk is full (0 MB free)"
    assert "XDG_CACHE_HOME" in hint
    assert left == ""


@pytest.mark.slow
def test_a_mirror_that_is_gone_is_named(store: Store) -> None:
    with pytest.raises(ProvisionError, match=r"127\.0\.0\.1:1 ") as caught:
        store.fetch_debian([deb("one")], {"debian": "http://127.0.0.1:1/debian"})
    assert "--mirror" in caught.value.hint
    assert files_in(store.directory) == []


def test_an_archive_may_be_moved_with_its_wheels_by_their_names(tmp_path: Path) -> None:
    store, one = Store(tmp_path / "archive"), wheel("one")
    (tmp_path / "file").write_text("one 1.0")
    store.add(tmp_path / "file", one)
    # Twice: an archive is added to.
    for _ in range(2):
        store.name_wheels([one], tmp_path / "archive" / "wheels")
    (tmp_path / "archive").rename(tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "wheels" / one.file).read_text() == "one 1.0"
