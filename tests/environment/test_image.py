# SPDX-License-Identifier: Apache-2.0
"""The image's files, by the OCI specification and for engines."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.environment.lock_maker import deb, debian_lock, wheel
from utvm.environment.image import Image, write_archive, write_image
from utvm.environment.rootfs import Layer
from utvm.environment.sbom import PackageLicences, bill_of_materials


@pytest.fixture
def image(tmp_path: Path) -> Image:
    layers = []
    for name in ("lower", "upper"):
        path = tmp_path / f"{name}.tar"
        with tarfile.open(path, "w") as tar:
            tar.addfile(tarfile.TarInfo(name))
        content = path.read_bytes()
        layers.append((name, Layer(path, hashlib.sha256(content).hexdigest(), len(content), 0)))
    return write_image(
        layers,
        tmp_path / "oci",
        created="2026-01-01T00:00:00Z",
        labels={"utvm.environment": "abc"},
        place="/opt/x",
        tags=("utvm:abc", "utvm:latest"),
    )


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


def _blob(layout: Path, entry: dict[str, Any]) -> bytes:
    """Return the content of a descriptor, compared with its size and digest."""
    content = (layout / "blobs" / entry["digest"].replace(":", "/")).read_bytes()
    assert len(content) == entry["size"]
    assert "sha256:" + hashlib.sha256(content).hexdigest() == entry["digest"]
    return content


def _names(tar: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return archive.getnames()


def test_layout_is_consistent(image: Image) -> None:
    """OCI image specification: oci-layout, index, manifest, configuration, layers, and their media types."""
    layout = image.layout
    assert _json(layout / "oci-layout") == {"imageLayoutVersion": "1.0.0"}
    index = _json(layout / "index.json")
    assert {entry["digest"] for entry in index["manifests"]} == {image.digest}
    names = [entry["annotations"]["org.opencontainers.image.ref.name"] for entry in index["manifests"]]
    assert names == ["abc", "latest"]
    manifest = json.loads(_blob(layout, index["manifests"][0]))
    assert manifest["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    config = json.loads(_blob(layout, manifest["config"]))
    assert manifest["config"]["digest"] == image.config
    assert config["config"]["Labels"] == {"utvm.environment": "abc"}
    assert config["config"]["Env"][0].startswith("PATH=/opt/x/bin:")
    layers = [_blob(layout, entry) for entry in manifest["layers"]]
    assert [_names(layer) for layer in layers] == [["lower"], ["upper"]]
    # The layers are not compressed: their digests are those of the uncompressed content.
    assert config["rootfs"]["diff_ids"] == [entry["digest"] for entry in manifest["layers"]]
    assert len(config["history"]) == 2


def test_older_engines_load_the_same_image(image: Image) -> None:
    (entry,) = _json(image.layout / "manifest.json")
    assert entry["RepoTags"] == ["utvm:abc", "utvm:latest"]
    assert entry["Config"] == "blobs/" + image.config.replace(":", "/")
    output = io.BytesIO()
    write_archive(image.layout, output)
    names = _names(output.getvalue())
    assert {entry["Config"], *entry["Layers"], "index.json", "oci-layout", "manifest.json"} <= set(names)


def test_bill_of_materials_has_every_package_and_hash() -> None:
    lock = debian_lock(deb("libstdc++6", "12.2.0-14+deb12u1"), deb("perl", "5:1~rc1"))
    wheels = [wheel("idna", "3.20")]
    terms = dict.fromkeys((package.sha256 for package in (*lock.packages, *wheels)), PackageLicences("MIT OR Zlib"))
    terms[lock.packages[0].sha256] = PackageLicences(names=("ad-hoc",), reason="SPDX has no such name")
    terms[lock.packages[1].sha256] = PackageLicences(reason="it has no copyright file")
    bill = json.loads(bill_of_materials(lock, wheels, "d" * 64, terms))
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    assert bill["metadata"]["timestamp"] == "2026-01-01T12:00:00Z"
    parts = {part["name"]: part for part in bill["components"]}
    # By the package URL specification: %2B for +, %3A for :, and ~ unchanged.
    assert parts["libstdc++6"]["purl"] == "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14%2Bdeb12u1?arch=amd64"
    assert parts["perl"]["purl"] == "pkg:deb/debian/perl@5%3A1~rc1?arch=amd64"
    assert parts["idna"]["purl"] == "pkg:pypi/idna@3.20"
    for package in (*lock.packages, *wheels):
        assert parts[package.name]["hashes"] == [{"alg": "SHA-256", "content": package.sha256}]
    assert bill["dependencies"][0]["dependsOn"] == [part["bom-ref"] for part in bill["components"]]
    assert bill == json.loads(bill_of_materials(lock, wheels, "d" * 64, terms))
    # An expression is the only entry; a name need not be in SPDX's list (CycloneDX 1.5, "licenses").
    assert parts["idna"]["licenses"] == [{"expression": "MIT OR Zlib"}]
    assert parts["libstdc++6"]["licenses"] == [{"license": {"name": "ad-hoc"}}]
    assert parts["perl"]["licenses"] == [{"license": {"name": "NOASSERTION"}}]
    assert [part["value"] for part in parts["perl"]["properties"]] == ["it has no copyright file"]
