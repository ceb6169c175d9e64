# SPDX-License-Identifier: Apache-2.0
"""A release: its files on a web server are complete and signed, and its image goes into a registry."""

import contextlib
import functools
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
import yaml

import utvm
from tests.environment.own_engine import missing, own_engine
from utvm.base.process import Service, free_port
from utvm.environment import builds
from utvm.environment.builds import build_package, changes, sign, write_notes, write_release
from utvm.environment.image import Image, tags, write_image
from utvm.environment.locked import load_lock_files
from utvm.environment.rootfs import Layer
from utvm.errors import ConfigError, ProvisionError
from utvm.paths import ROOT


@pytest.fixture
def image(tmp_path: Path) -> Image:
    """A small image, written like the environment's."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "hello").write_text("hello")
    tar = tmp_path / "layer.tar"
    subprocess.run(["tar", "-cf", tar, "-C", tmp_path / "root", "hello"], check=True)
    digest = hashlib.sha256(tar.read_bytes()).hexdigest()
    layer = Layer(tar, digest, tar.stat().st_size, 5)
    (tmp_path / "image").mkdir()
    return write_image(
        [("a file", layer)],
        tmp_path / "image" / "oci",
        created="2026-01-01T00:00:00Z",
        labels=load_lock_files().labels,
        place="/opt/utvm",
        tags=tags(load_lock_files()),
    )


@pytest.fixture
def release_folder(tmp_path: Path, image: Image) -> Path:
    (tmp_path / "image" / "sbom.cdx.json").write_text("{}")
    (tmp_path / "image" / "SHA256SUMS").write_text("of the image alone")
    box = tmp_path / "box"
    box.mkdir()
    (box / "utvm.box").write_bytes(b"a box")
    checksum = hashlib.sha256(b"a box").hexdigest()
    provider = {"name": "libvirt", "url": "utvm.box", "checksum_type": "sha256", "checksum": checksum}
    (box / "utvm.json").write_text(json.dumps({"versions": [{"version": "1", "providers": [provider]}]}))
    return write_release([tmp_path / "image", box], tmp_path / "release")


@pytest.fixture
def server_address(release_folder: Path) -> Iterator[str]:
    with _serve(release_folder) as address:
        yield address


@contextlib.contextmanager
def _serve(folder: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


_CHANGELOG = """# Changelog

## 1.1.0, 2027-02-01

- Newer: [docs/newer.md](docs/newer.md), [as asked](https://example.org).

## 1.0.0, 2027-01-01

- Old.
"""


def test_release_notes_have_changes_and_digests(tmp_path: Path) -> None:
    changed = changes(_CHANGELOG, "1.1.0")
    write_notes(tmp_path, {"box": "sha256:abc"}, changed)
    notes = (tmp_path / "NOTES.md").read_text()
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    commit = subprocess.run(git, check=False, capture_output=True, text=True).stdout.strip()
    commit_line = rf"Commit {commit}(, with changes)?\.\n\n" if commit else ""
    assert re.match(rf"# utvm {re.escape(utvm.__version__)}\n\n{commit_line}Of 2027-02-01\.\n\n- Newer: ", notes)
    assert "- Newer: docs/newer.md, [as asked](https://example.org).\n" in notes
    assert "\nminisign -V -p utvm.pub -m SHA256SUMS && sha256sum --check --quiet SHA256SUMS\n" in notes
    assert "| box | `sha256:abc` |\n" in notes
    assert "Old" not in notes


def test_version_without_changes_is_not_released() -> None:
    with pytest.raises(ConfigError, match=r"no section '## 1\.2\.0, DATE'"):
        changes(_CHANGELOG, "1.2.0")
    assert changes((ROOT / "CHANGELOG.md").read_text()), "the version of this checkout has its section"


@pytest.mark.slow
def test_wheel_and_source_archive_have_this_version(tmp_path: Path) -> None:
    files = build_package(tmp_path)
    version = utvm.__version__
    assert set(files) == {f"utvm-{version}-py3-none-any.whl", f"utvm-{version}.tar.gz"}
    for name, digest in files.items():
        assert digest == f"sha256:{hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}"


@pytest.mark.nightly
def test_wheel_is_installed_from_an_index(tmp_path: Path) -> None:
    """The server's pages of folders have the form of a package index (PEP 503)."""
    files = build_package(tmp_path / "simple" / "utvm")
    installed = tmp_path / "installed"
    with _serve(tmp_path) as address:
        pip = [sys.executable, "-m", "pip", "install", "--isolated", "--quiet", "--no-deps", "--target", installed]
        subprocess.run([*pip, "--index-url", f"{address}simple/", f"utvm=={utvm.__version__}"], check=True)
    command = [sys.executable, "-m", "utvm", "--version"]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    completed = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert utvm.__version__ in completed.stdout
    assert len(files) == 2 and (installed / "utvm_data" / "provision" / "published.yaml").is_file()


def test_served_release_is_complete_and_signed(release_folder: Path, server_address: str, tmp_path: Path) -> None:
    key, public, copy = tmp_path / "utvm.key", tmp_path / "utvm.pub", tmp_path / "copy"
    subprocess.run(["minisign", "-G", "-W", "-p", public, "-s", key], check=True, capture_output=True)
    sign(release_folder, str(key), "utvm environment abc")

    def fetch(name: str) -> bytes:
        with urllib.request.urlopen(server_address + name, timeout=60) as response:
            content: bytes = response.read()
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(content)
        return content

    listed = [line.partition("  ")[2] for line in fetch("SHA256SUMS").decode().splitlines()]
    for name in (*listed, "SHA256SUMS.minisig"):
        fetch(name)
    assert {"utvm.box", "utvm.json", "sbom.cdx.json", "oci/index.json"} < set(listed)
    subprocess.run(["minisign", "-V", "-q", "-p", public, "-m", "SHA256SUMS"], cwd=copy, check=True)
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=copy, check=True)
    # Vagrant finds the box beside its catalogue.
    (provider,) = json.loads(fetch("utvm.json"))["versions"][0]["providers"]
    assert hashlib.sha256(fetch(provider["url"])).hexdigest() == provider["checksum"]


def test_release_replaces_only_a_release(release_folder: Path, tmp_path: Path) -> None:
    assert write_release([tmp_path / "image", tmp_path / "box"], release_folder) == release_folder
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("one")
    with pytest.raises(ConfigError, match="not a release"):
        write_release([tmp_path / "image", tmp_path / "box"], tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter").read_text() == "one"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Debian's registry on the loopback network; yields its address."""
    if not shutil.which("docker-registry") or not shutil.which("skopeo"):
        pytest.skip("this machine lacks Debian's docker-registry or skopeo")
    port = free_port()
    settings = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "store")}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    (tmp_path / "registry.yml").write_text(json.dumps(settings))
    command = ["docker-registry", "serve", tmp_path / "registry.yml"]
    log = tmp_path / "registry.log"
    with Service("registry", command, log=log, health="listening on", error=ProvisionError):
        yield f"127.0.0.1:{port}"


def _publish(release: Path, name: str) -> tuple[str, str]:
    """Push a release's image; return the environment's digest, and the reference."""
    command = [ROOT / ".ci" / "publish", release, name, "--dest-tls-verify=false"]
    completed = subprocess.run(command, check=True, capture_output=True, text=True)
    environment, _, reference = completed.stdout.strip().partition(": ")
    return environment, reference


@pytest.mark.nightly
@pytest.mark.skipif(bool(missing()), reason=f"this machine lacks {missing()}")
def test_published_image_is_pulled_in_place_of_a_build(
    image: Image, release_folder: Path, registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = tmp_path / "published.yaml"
    monkeypatch.setattr(builds, "PUBLISHED", published)
    monkeypatch.setattr(builds, "make_image", lambda *_: pytest.fail("the image was built"))
    locked = load_lock_files()
    environment, reference = _publish(release_folder, f"{registry}/utvm")
    assert (environment, reference) == (locked.digest, f"{registry}/utvm@{image.digest}")
    published.write_text(yaml.safe_dump({"images": {environment: reference}}))
    lines: list[str] = []
    with own_engine() as address, contextlib.closing(docker.DockerClient(base_url=address)) as client:
        tag = builds.ensure_image(client, lines.append)
        assert client.images.get(tag).id == image.config
        assert lines == [f"pulling {reference}"]
        # Another content has another digest: the engine refuses what the registry cannot give.
        client.images.remove(tag, force=True)
        published.write_text(yaml.safe_dump({"images": {environment: f"{registry}/utvm@sha256:{'0' * 64}"}}))
        with pytest.raises(pytest.fail.Exception, match="the image was built"):
            builds.ensure_image(client, lines.append)
    assert any("cannot be pulled: manifest" in line for line in lines)
