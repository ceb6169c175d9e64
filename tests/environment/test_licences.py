# SPDX-License-Identifier: Apache-2.0
"""Licences of packages as SPDX expressions, from Debian's copyright files and wheels' metadata."""

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
        for name, target in links.items():
            member = tarfile.TarInfo(f"usr/share/doc/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return path


def _parse(folder: Path, *licences: str) -> PackageLicences:
    text = _HEAD + "".join(f"\nFiles: {licence}\nLicense: {licence}\n Words of it.\n" for licence in licences)
    return debian_licences(_layer(folder, {"one/copyright": text}, {}), ["one"])["one"]


@pytest.mark.parametrize(
    ("licences", "expression"),
    [
        # Left: short names of the copyright format 1.0, section "License specification". Right: names in SPDX's list.
        (["GPL-2"], "GPL-2.0-only"),
        (["GPL-2+", "Expat", "GPL-2+"], "GPL-2.0-or-later AND MIT"),
        (["LGPL-2.1+"], "LGPL-2.1-or-later"),
        (["GPL-1+ or Artistic"], "GPL-1.0-or-later OR Artistic-1.0"),
        (["Perl", "BSD-3-clause"], "(Artistic-1.0-Perl OR GPL-1.0-or-later) AND BSD-3-Clause"),
        (["GFDL-NIV-1.3+"], "GFDL-1.3-no-invariants-or-later"),
        (["GPL-2 with Linux-syscall-note exception"], "GPL-2.0-only WITH Linux-syscall-note"),
        (["Apache-2.0 with LLVM exception"], "Apache-2.0 WITH LLVM-exception"),
        (["ZLIB and ISC"], "Zlib AND ISC"),
        # Names that SPDX lacks, or that are ambiguous, are not guessed.
        (["GPL-7"], ""),
        (["public-domain"], ""),
        (["GPL"], ""),
        (["Expat", "MIT-like"], ""),
        (["GPL-1+ or Artistic, and Expat"], ""),
        (["GPL-3+ with Bison exception"], ""),
        (["LicenseRef-mine"], ""),
    ],
)
def test_names_of_the_copyright_format_are_converted(licences: list[str], expression: str, tmp_path: Path) -> None:
    result = _parse(tmp_path, *licences)
    assert result.expression == expression
    assert bool(result.reason) is not bool(expression)
    assert result.names == (() if expression else tuple(sorted(licences)))


def test_unknown_licence_has_a_reason(tmp_path: Path) -> None:
    files = {
        "free/copyright": "It is under the GPL.\n",
        "none/copyright": _HEAD,
        "lib/copyright": _HEAD + "License: ISC\n",
    }
    links = {"cc": "lib2", "lib2": "lib", "round": "round", "lib/changelog": "../x"}
    licences = debian_licences(_layer(tmp_path, files, links), ["free", "none", "lost", "cc", "round"])
    assert licences["free"].reason == "its copyright file is free text: /usr/share/doc/free/copyright"
    assert licences["none"].reason == "it names no licence"
    assert licences["lost"].reason == licences["round"].reason == "it has no copyright file"
    assert licences["cc"] == PackageLicences("ISC")


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
def test_licence_of_a_wheel_is_that_of_its_metadata(
    metadata: str, expression: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        wheel.writestr("x/METADATA", "License: WTFPL\n")
        wheel.writestr("x-1.dist-info/METADATA", f"Metadata-Version: 2.4\nName: x\n{metadata}\n")
    result = wheel_licences(tmp_path / "x.whl")
    assert (result.expression, result.names, bool(result.reason)) == (expression, names, not expression)
