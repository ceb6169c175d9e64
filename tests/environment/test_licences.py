# SPDX-License-Identifier: Apache-2.0
"""Packages' terms in SPDX's words: from copyright files as Debian has them, and from the metadata of wheels."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from utvm.environment.sbom import PackageLicences, debian_licences, wheel_licences

_HEAD = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: x\n"


def _layer(folder: Path, files: dict[str, str], links: dict[str, str]) -> Path:
    path = folder / "layer.tar"
    with tarfile.open(path, "w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"usr/share/doc/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
        for name, place in links.items():
            member = tarfile.TarInfo(f"usr/share/doc/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, place
            tar.addfile(member)
    return path


def _said(folder: Path, *licences: str) -> PackageLicences:
    text = _HEAD + "".join(f"\nFiles: {each}\nLicense: {each}\n Words of it.\n" for each in licences)
    return debian_licences(_layer(folder, {"one/copyright": text}, {}), ["one"])["one"]


@pytest.mark.parametrize(
    ("licences", "expression"),
    [
        # Short names of the copyright format 1.0, section "License specification"; the right side is SPDX's list.
        (["GPL-2"], "GPL-2.0-only"),
        (["GPL-2+", "Expat", "GPL-2+"], "GPL-2.0-or-later AND MIT"),
        (["LGPL-2.1+"], "LGPL-2.1-or-later"),
        (["GPL-1+ or Artistic"], "GPL-1.0-or-later OR Artistic-1.0"),
        (["Perl", "BSD-3-clause"], "(Artistic-1.0-Perl OR GPL-1.0-or-later) AND BSD-3-Clause"),
        (["GFDL-NIV-1.3+"], "GFDL-1.3-no-invariants-or-later"),
        (["GPL-2 with Linux-syscall-note exception"], "GPL-2.0-only WITH Linux-syscall-note"),
        (["Apache-2.0 with LLVM exception"], "Apache-2.0 WITH LLVM-exception"),
        (["ZLIB and ISC"], "Zlib AND ISC"),
        # What SPDX has not, or not one of: no guess.
        (["GPL-7"], ""),
        (["public-domain"], ""),
        (["GPL"], ""),
        (["Expat", "MIT-like"], ""),
        (["GPL-1+ or Artistic, and Expat"], ""),
        (["GPL-3+ with Bison exception"], ""),
        (["LicenseRef-mine"], ""),
    ],
)
def test_names_of_the_copyright_format_are_spdx_s_or_none(licences: list[str], expression: str, tmp_path: Path) -> None:
    said = _said(tmp_path, *licences)
    assert said.expression == expression
    assert bool(said.reason) is not bool(expression)
    assert said.names == (() if expression else tuple(sorted(licences)))


def test_where_there_is_no_certain_answer_the_reason_is_given(tmp_path: Path) -> None:
    files = {
        "free/copyright": "It is under the GPL.\n",
        "none/copyright": _HEAD,
        "lib/copyright": _HEAD + "License: ISC\n",
    }
    links = {"cc": "lib2", "lib2": "lib", "round": "round", "lib/changelog": "../x"}
    found = debian_licences(_layer(tmp_path, files, links), ["free", "none", "lost", "cc", "round"])
    assert found["free"].reason == "its copyright file is free text: /usr/share/doc/free/copyright"
    assert found["none"].reason == "it names no licence"
    assert found["lost"].reason == found["round"].reason == "it has no copyright file"
    assert found["cc"] == PackageLicences("ISC")


@pytest.mark.parametrize(
    ("metadata", "expression", "names"),
    [
        ("License-Expression: mit OR apache-2.0\nLicense: other", "MIT OR Apache-2.0", ()),
        ("License: BSD-3-Clause", "BSD-3-Clause", ()),
        ("License: The MIT one\nClassifier: License :: OSI Approved :: MIT License", "MIT", ()),
        ("Classifier: License :: OSI Approved :: BSD License", "", ("BSD License",)),
        ("Classifier: License :: OSI Approved\nLicense: mine", "", ("mine",)),
        (
            "Classifier: License :: OSI Approved :: MIT License\nClassifier: License :: BSD License",
            "",
            ("BSD License", "MIT License"),
        ),
        ("Classifier: Programming Language :: C\n\nLicense: MIT", "", ()),
    ],
)
def test_a_wheel_s_terms_are_those_of_its_metadata(
    metadata: str, expression: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        wheel.writestr("x/METADATA", "License: WTFPL\n")
        wheel.writestr("x-1.dist-info/METADATA", f"Metadata-Version: 2.4\nName: x\n{metadata}\n")
    found = wheel_licences(tmp_path / "x.whl")
    assert (found.expression, found.names, bool(found.reason)) == (expression, names, not expression)
