# SPDX-License-Identifier: Apache-2.0
"""Text from outside: each language's own reader returns it unchanged, and executes none of it.

The readers are the programs themselves (OpenOCD, GDB, sh, ssh, gcc and the linker), and otherwise an independent
parser.
"""

import html
import io
import os
import re
import shlex
import tarfile
import xml.etree.ElementTree as ET
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from onnx import TensorProto, helper
from rich.markup import escape
from rich.table import Table

from tests import quoting as readers
from tests.portions import by_day
from tests.quoting import check, hostile_strings
from utvm.base.text import quoting
from utvm.base.text.quoting import archive_member, comment, printable
from utvm.base.text.templates import templates_of
from utvm.base.text.terminal import Terminal
from utvm.cli import model_library, model_run, output
from utvm.cli.choices import CompileChoice, RunChoice
from utvm.compiler import compile_model, from_onnx
from utvm.errors import ConfigError
from utvm.hil import report
from utvm.selection import BoardSelection

HOSTILE = ["a[/b]", "[red]a[/red]", "\x1b]0;title\x07\x1b[2J", "../../x", "file", "*/ int x; /*", "??/\n#error",
           "<script>alert(1)</script>", "a\r\nb", "\u202egpj.exe", "|`x`|", "a\\", "/etc/passwd",
           ":warning:"]  # fmt: skip
ANY_NAME = st.text(max_size=30) | st.sampled_from(HOSTILE) | st.text("[]/\\*?<>&'\"\x1b\x07\r\n=ab", max_size=20)


def model(folder: Path, name: str) -> Path:
    """Write a model of one operator, whose input and output have the name."""
    value = [helper.make_tensor_value_info(tensor, TensorProto.FLOAT, [2]) for tensor in (name, f"{name}'")]
    node = helper.make_node("Add", [name, name], [f"{name}'"], name=name)
    graph = helper.make_graph([node], "g", value[:1], value[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return folder / "m.onnx"


def is_harmless(text: str) -> bool:
    return all(letter.isprintable() for letter in text.replace("\n", ""))


@pytest.fixture
def terminal_output(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Output of commands, on a terminal with colours."""
    stream = io.StringIO()
    monkeypatch.setattr(output.OUT, "_file", stream)
    return stream


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        self.counts[tag] += 1


def _count_tags(folder: Path, name: str) -> Counter[str]:
    """Count the tags of the report of a model with this name."""
    folder.mkdir()
    choice = CompileChoice(model=str(model(folder, name)))
    model_library.report(choice, str(folder / "out"), explain=False, misra=False)
    (page,) = (folder / "out").rglob("*.html")
    tags = _Tags()
    tags.feed(page.read_text(encoding="utf-8"))
    return tags.counts


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_report_escapes_any_name(name: str, tmp_path: Path, terminal_output: io.StringIO) -> None:
    tags = _count_tags(tmp_path / "hostile", name)
    assert is_harmless(terminal_output.getvalue())
    assert printable(f"{name}'")[:12] in terminal_output.getvalue().replace("\n", "")
    assert tags == _count_tags(tmp_path / "plain", "model")


@pytest.mark.parametrize("name", ["a[/b]", "../../x", "file", "*/ int x; /*", "\x1b[2J"], ids=ascii)
def test_package_with_any_name_stays_in_its_folder(name: str, tmp_path: Path, terminal_output: io.StringIO) -> None:
    archive = tmp_path / "m.tar"
    model_library.package(CompileChoice(model=str(model(tmp_path, name))), str(archive))
    with tarfile.open(archive) as content:
        for file in content.getmembers():
            assert (tmp_path / "out" / file.name).resolve().is_relative_to(tmp_path / "out")
            if file.name.endswith((".h", ".c", ".md")) and (opened := content.extractfile(file)):
                assert is_harmless(opened.read().decode())
    assert is_harmless(terminal_output.getvalue())


@pytest.mark.slow
@pytest.mark.parametrize("name", by_day(["a[/b]", "../../x", "file", "\x1b[2J"], "\x1b[2J"), ids=ascii)
def test_run_prints_and_writes_any_name(name: str, tmp_path: Path, terminal_output: io.StringIO) -> None:
    np.save(tmp_path / "in.npy", np.array([1, 2], np.float32))
    choice = RunChoice(model=str(model(tmp_path, name)), input=str(tmp_path / "in.npy"))
    model_run.run_model(choice, BoardSelection("host"), str(tmp_path / "o.npz"), standing_alone=False)
    assert is_harmless(terminal_output.getvalue()) and f"output {printable(name)}'" in terminal_output.getvalue()
    with np.load(tmp_path / "o.npz") as outputs:
        np.testing.assert_array_equal(outputs[archive_member(f"{name}'")], np.array([2, 4], np.float32), strict=True)


@given(ANY_NAME)
@example("a[/b]")
def test_terminal_shows_any_text(name: str) -> None:
    stream = io.StringIO()
    plain = Terminal(file=stream, markup=False, soft_wrap=True, force_terminal=True)
    plain.print(f"output {name}: float32")
    # A tab becomes several spaces.
    expected = "".join(printable(letter) for letter in name.replace("\n", "")) if "\t" not in name else ""
    assert expected in stream.getvalue().replace("\n", "") and is_harmless(stream.getvalue())
    styled = Terminal(file=stream, soft_wrap=True, force_terminal=True)
    table = Table("name", box=None)
    table.add_row(escape(name))
    styled.print(escape(name), table)
    assert is_harmless(re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()))


@given(ANY_NAME)
def test_c_comment_ends_where_it_should(name: str) -> None:
    text = f"/* {comment(name)} */"
    assert text.isascii() and text.isprintable() and text.count("*/") == text.count("/*") == 1
    assert "\\" not in text and "??" not in text


@given(ANY_NAME)
def test_archive_member_stays_in_its_folder(name: str) -> None:
    path = archive_member(name)
    assert path.isprintable() and not path.startswith("/") and "\\" not in path
    assert not {"", ".", ".."} & set(path.split("/"))


@pytest.mark.slow
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANY_NAME.filter(bool))
def test_library_is_plain_c_with_any_tensor_name(name: str) -> None:
    value = [helper.make_tensor_value_info(tensor, TensorProto.FLOAT, [2]) for tensor in (name, f"{name}'")]
    graph = helper.make_graph([helper.make_node("Neg", [name], [f"{name}'"])], "g", value[:1], value[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    library = compile_model(from_onnx(proto.SerializeToString(), "m"))
    assert all(text.isascii() and is_harmless(text) for file, text in library.sources.items() if file[-1] in "hc")
    assert all(Path(file).name == file for file in library.sources)


MANY = pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow)])
# No program can receive these: only other surrogates stand for bytes.
_NO_BYTES = "\ud800-\udc7f\udd00-\udfff"


@MANY
def test_openocd_reads_text_as_one_word(count: int, tmp_path: Path) -> None:
    texts = hostile_strings(count, f"\0\1\2\3{_NO_BYTES}")
    values = readers.openocd([quoting.tcl(text) for text in texts], tmp_path)
    check(values[::2], texts, os.fsencode)
    check([value for value in values[1::2] if value != b"{}"], [text for text in texts if text], os.fsencode)


@MANY
def test_gdb_reads_text_as_one_argument(count: int, tmp_path: Path) -> None:
    texts = [f"x{text}x" for text in hostile_strings(count, f"\0\n\r{_NO_BYTES}")]
    check(readers.gdb([quoting.gdb(text) for text in texts], tmp_path), texts, os.fsencode)


@MANY
def test_shell_reads_text_as_one_word(count: int, tmp_path: Path) -> None:
    texts = hostile_strings(count, f"\0{_NO_BYTES}")
    check(readers.shell([shlex.quote(text) for text in texts], tmp_path), texts, os.fsencode)


@MANY
def test_ssh_reads_text_as_one_path(count: int, tmp_path: Path) -> None:
    texts = [f"{number}{text}x" for number, text in enumerate(hostile_strings(count, f"\0\n\r{_NO_BYTES}"))]
    paths = readers.ssh([quoting.ssh_config(text) for text in texts], tmp_path)
    # ssh prints a path before it expands percent signs.
    check([path.replace(b"%%", b"%") for path in paths], texts, os.fsencode)


@MANY
def test_compiler_reads_text_as_one_string(count: int, tmp_path: Path) -> None:
    texts = hostile_strings(count)
    values = readers.gcc([quoting.c_string(text) for text in texts], [comment(text) for text in texts], tmp_path)
    check(values, texts, lambda text: text.encode("utf-8", "backslashreplace"))


@MANY
def test_linker_reads_text_as_one_name(count: int, tmp_path: Path) -> None:
    names = [quoting.linker_name(f"{number}{text}") for number, text in enumerate(hostile_strings(count))]
    check(readers.linker(names, tmp_path), [name.strip('"').rstrip() for name in names], str.encode)


@MANY
def test_parsers_read_text_unchanged(count: int) -> None:
    page = templates_of("utvm.hil", html=True).from_string("<p title='{{ text }}'>{{ text }}</p>")
    for text in hostile_strings(count):
        plain = quoting.encodable(text)
        assert yaml.safe_load(quoting.yaml_string(text)) == plain
        assert yaml.load(quoting.yaml_string(text), yaml.CSafeLoader) == plain
        element = ET.Element("a", {"b": f"x{text}"})
        element.text = f"x{text}"
        read = ET.fromstring(report.xml_document(element))
        assert read.tag == "a" and not len(read) and list(read.attrib) == ["b"]
        assert (read.text or "").splitlines() == quoting.legal_xml(f"x{text}").replace("\r", "\n").splitlines()
        tags = _Tags()
        tags.feed(page.render(text=text))
        assert set(tags.counts) == {"p"}
        table = MarkdownIt().enable("table").render(f"| a |\n|---|\n| {quoting.markdown_cell(text)} |\n")
        cells = re.findall(r"<t[dh]>(.*?)</t[dh]>", table)
        assert [html.unescape(cell) for cell in cells] == ["a", printable(" ".join(text.split()))]


def test_text_that_cannot_be_quoted_is_refused() -> None:
    for quote, text in (
        *((quoting.tcl, text) for text in ("a\0b", "\ud800")),
        *((quoting.gdb, text) for text in ("a\nshell touch x", "\0")),
        *((quoting.ssh_config, text) for text in ("a\nProxyCommand x", "\ud800")),
    ):
        with pytest.raises(ConfigError, match="cannot be given to") as caught:
            quote(text)
        assert caught.value.message.isprintable()
