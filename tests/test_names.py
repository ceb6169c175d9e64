# SPDX-License-Identifier: Apache-2.0
"""Names from strangers: whatever a tensor is called, it is shown, does nothing, and stays where it belongs."""

import io
import re
import tarfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from rich.markup import escape
from rich.table import Table

from utvm.base.text.names import comment, member, printable
from utvm.base.text.terminal import Terminal
from utvm.cli import model_library, model_run, output
from utvm.cli.choices import CompileChoice, JsonChoice, RunChoice
from utvm.compiler import compile_model, from_onnx
from utvm.selection import BoardSelection

HOSTILE = ["a[/b]", "[red]a[/red]", "\x1b]0;title\x07\x1b[2J", "../../x", "file", "*/ int x; /*", "??/\n#error",
           "<script>alert(1)</script>", "a\r\nb", "\u202egpj.exe", "|`x`|", "a\\", "/etc/passwd",
           ":warning:"]  # fmt: skip
ANY_NAME = st.text(max_size=30) | st.sampled_from(HOSTILE) | st.text("[]/\\*?<>&'\"\x1b\x07\r\n=ab", max_size=20)


def model(folder: Path, name: str) -> Path:
    """Write a model whose input and output have a name, and something behind it."""
    value = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [2]) for each in (name, f"{name}'")]
    node = helper.make_node("Add", [name, name], [f"{name}'"], name=name)
    graph = helper.make_graph([node], "g", value[:1], value[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return folder / "m.onnx"


def is_harmless(text: str) -> bool:
    return all(letter.isprintable() for letter in text.replace("\n", ""))


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What commands print, on a terminal with colours."""
    stream = io.StringIO()
    monkeypatch.setattr(output.OUT, "_file", stream)
    return stream


class _Tags(HTMLParser):
    """Collects the tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        self.found.add(tag)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_report_shows_any_name_and_does_nothing_of_what_it_says(
    name: str, tmp_path: Path, printed: io.StringIO
) -> None:
    model_library.report(
        CompileChoice(model=str(model(tmp_path, name))), JsonChoice(), str(tmp_path / "out"), False
    )
    assert is_harmless(printed.getvalue())
    assert printable(f"{name}'")[:12] in printed.getvalue().replace("\n", "")
    (page,) = (tmp_path / "out").rglob("*.html")
    tags = _Tags()
    tags.feed(page.read_text(encoding="utf-8"))
    assert not tags.found & {"script", "red"}


@pytest.mark.parametrize("name", ["a[/b]", "../../x", "file", "*/ int x; /*", "\x1b[2J"], ids=ascii)
def test_a_package_holds_any_name_where_it_belongs(name: str, tmp_path: Path, printed: io.StringIO) -> None:
    archive = tmp_path / "m.tar"
    model_library.package(CompileChoice(model=str(model(tmp_path, name))), JsonChoice(), str(archive))
    with tarfile.open(archive) as content:
        for file in content.getmembers():
            assert (tmp_path / "out" / file.name).resolve().is_relative_to(tmp_path / "out")
            if file.name.endswith((".h", ".c", ".md")) and (opened := content.extractfile(file)):
                assert is_harmless(opened.read().decode())
    assert is_harmless(printed.getvalue())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a[/b]", "../../x", "file", "\x1b[2J"], ids=ascii)
def test_a_run_prints_and_writes_any_name(name: str, tmp_path: Path, printed: io.StringIO) -> None:
    np.save(tmp_path / "in.npy", np.array([1, 2], np.float32))
    asked = RunChoice(model=str(model(tmp_path, name)), input=str(tmp_path / "in.npy"))
    model_run.run_model(asked, BoardSelection("host"), str(tmp_path / "o.npz"), JsonChoice(), False, False)
    assert is_harmless(printed.getvalue()) and f"output {printable(name)}'" in printed.getvalue()
    with np.load(tmp_path / "o.npz") as answer:
        np.testing.assert_array_equal(answer[member(f"{name}'")], np.array([2, 4], np.float32), strict=True)


@given(ANY_NAME)
@example("a[/b]")
def test_a_terminal_shows_any_words(name: str) -> None:
    stream = io.StringIO()
    plain = Terminal(file=stream, markup=False, soft_wrap=True, force_terminal=True)
    plain.print(f"output {name}: float32")
    # A tab becomes as many spaces as it takes.
    told = "".join(printable(letter) for letter in name.replace("\n", "")) if "\t" not in name else ""
    assert told in stream.getvalue().replace("\n", "") and is_harmless(stream.getvalue())
    styled = Terminal(file=stream, soft_wrap=True, force_terminal=True)
    table = Table("name", box=None)
    table.add_row(escape(name))
    styled.print(escape(name), table)
    assert is_harmless(re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()))


@given(ANY_NAME)
def test_a_comment_of_c_ends_where_it_should(name: str) -> None:
    text = f"/* {comment(name)} */"
    assert text.isascii() and text.isprintable() and text.count("*/") == text.count("/*") == 1
    assert "\\" not in text and "??" not in text


@given(ANY_NAME)
def test_a_member_stays_in_its_folder(name: str) -> None:
    path = member(name)
    assert path.isprintable() and not path.startswith("/") and "\\" not in path
    assert not {"", ".", ".."} & set(path.split("/"))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANY_NAME.filter(bool))
def test_a_library_is_plain_c_whatever_its_tensors_are_called(name: str) -> None:
    value = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [2]) for each in (name, f"{name}'")]
    graph = helper.make_graph([helper.make_node("Neg", [name], [f"{name}'"])], "g", value[:1], value[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    library = compile_model(from_onnx(proto.SerializeToString(), "m"))
    assert all(text.isascii() and is_harmless(text) for file, text in library.sources.items() if file[-1] in "hc")
    assert all(Path(file).name == file for file in library.sources)
