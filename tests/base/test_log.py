# SPDX-License-Identifier: Apache-2.0
"""The log: branches, levels, volume, and the escaping of text from outside."""

import logging
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import utvm
from tests.probe.fake_gdb_server import FakeGdbServer
from utvm.base import log
from utvm.base.process import Service
from utvm.base.storage.cache import Cache
from utvm.errors import ConfigError, ProbeError
from utvm.probe.packets import GdbLink

_PACKAGE = Path(utvm.__file__).parent


def _log_text(folder: Path) -> str:
    return (folder / log.FILE).read_text(encoding="utf-8")


def test_loggers_are_the_branches() -> None:
    pattern = re.compile(r'(?:getLogger\(|log_branch=)"(utvm\.[\w.]+)"')
    # A virtual board is a process of its own, with a log of its own.
    used = {name for path in _PACKAGE.rglob("*.py") for name in pattern.findall(path.read_text(encoding="utf-8"))}
    assert used == set(log.BRANCHES)


def test_packets_to_and_from_a_gdb_server(tmp_path: Path) -> None:
    with FakeGdbServer() as server, log.log_into(tmp_path):
        link = GdbLink(server.connect(), "")
        link.send(b"qSupported", 5.0)
        assert link.receive(5.0)
        link.send(b"X0,1000:" + bytes(4096), 5.0)
        link.close()
    text = _log_text(tmp_path)
    assert "utvm.probe.gdb: -> qSupported\n" in text
    assert "utvm.probe.gdb: <- PacketSize=4000;qXfer" in text
    # A large packet is cut off.
    assert re.search(r"-> X0,1000:(\\x00)+ \.\.\. \(4104 bytes\)\n", text)


def test_output_of_openocd_is_logged(tmp_path: Path) -> None:
    code = "print('Info : hello', flush=True); print('ready', flush=True); import time; time.sleep(60)"
    with log.log_into(tmp_path):
        service = Service(
            "OpenOCD",
            [sys.executable, "-c", code],
            log=tmp_path / "openocd.log",
            health="ready",
            error=ProbeError,
            log_branch="utvm.probe.openocd",
        )
        with service:
            assert "utvm.probe.openocd: Info : hello\n" in _log_text(tmp_path)
            pid = service.pid
    text = _log_text(tmp_path)
    assert text.count("openocd: Info : hello") == 1
    assert f"utvm.process: OpenOCD is process {pid}: " in text
    assert f"utvm.process: OpenOCD, process {pid}, was ended: -15\n" in text


@pytest.mark.parametrize(
    "message", ["\x1b[2J\x07", "one\ntwo: a line of its own?", "\r\x00\x7f", "\u202e\u2028", "\x9b31m"]
)
def test_control_characters_are_escaped_in_the_log(tmp_path: Path, message: str) -> None:
    with log.log_into(tmp_path):
        logging.getLogger("utvm.session.board").info("%s", f"<{message}>")
    (line,) = [line for line in _log_text(tmp_path).split("\n") if "session.board" in line]
    assert line.isprintable()
    assert line.endswith(f"utvm.session.board: <{message.encode('unicode_escape').decode()}>")


def test_control_characters_are_escaped_for_other_handlers(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("utvm.session.board").warning("%s", "\x1b[2J")
    assert caplog.messages == ["\\x1b[2J"]


def test_handlers_of_the_program_get_no_packets(tmp_path: Path) -> None:
    code = (
        "import logging, pathlib, sys; from utvm.base import log\n"
        "logging.basicConfig(level=logging.INFO)\n"
        "with log.log_into(pathlib.Path(sys.argv[1])): logging.getLogger('utvm.probe.gdb').debug('-> m0,4')\n"
    )
    completed = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert completed.stderr == ""
    assert "-> m0,4" in _log_text(tmp_path)


def test_cache_hits_and_misses_are_logged(tmp_path: Path) -> None:
    cache = Cache("things", tmp_path)
    with log.log_into(tmp_path):
        for _ in range(2):
            cache.fetch("0123456789abcdef", lambda folder: (folder / "a").touch())
        (tmp_path / "things" / "0123456789abcdef" / "a").write_text("spoilt")
        cache.find("0123456789abcdef")
    messages = re.findall(r"utvm\.cache: (.*)", _log_text(tmp_path))
    assert messages == [
        "things 0123456789ab: is missing, creating it",
        "things 0123456789ab: found in the cache",
        f"{tmp_path}/things/0123456789abcdef: damaged, not used; "
        "set aside as 0123456789abcdef.damaged and created again",
    ]


class _Untouchable(bytes):
    """Bytes that must not be read."""

    def __getitem__(self, _: object) -> bytes:  # type: ignore[override]
        raise AssertionError("a packet was worked out that nobody wants to see")


def test_packet_is_not_formatted_without_a_handler(tmp_path: Path) -> None:
    with FakeGdbServer() as server:
        link = GdbLink(server.connect(), "")
        link.send(_Untouchable(b"c"), 5.0)
        with log.log_into(tmp_path), pytest.raises(AssertionError, match="worked out"):
            str(log.Excerpt(_Untouchable(b"c")))
        assert not logging.getLogger("utvm.probe.gdb").isEnabledFor(logging.INFO)
        link.send(_Untouchable(b"c"), 5.0)
        link.close()


def test_run_goes_on_without_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with log.log_into(tmp_path):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            for _ in range(3):
                logging.getLogger("utvm.cache").info("anything")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert capsys.readouterr().err.splitlines() == [
        f"the log {tmp_path / log.FILE} ends here: [Errno 27] File too large"
    ]


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ("loud", "--log-level: 'loud' is not a level"),
        ("utvm.probe.gdb=", "--log-level: '' is not a level"),
        ("utvm.probe.gbd=debug", "--log-level: there is no branch 'utvm.probe.gbd'"),
        ("pro=debug", "there is no branch 'pro'"),
    ],
)
def test_invalid_level_is_refused(levels: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        log.configure(levels, "")


_LOG_EVERYTHING = (
    "import logging, sys; from utvm.base import log\n"
    "log.configure(*sys.argv[1:])\n"
    "for branch in log.BRANCHES:\n"
    "    for level in (logging.DEBUG, logging.INFO, logging.WARNING):\n"
    "        logging.getLogger(branch).log(level, 'x')\n"
)


def _messages_on_stderr(levels: str, variable: str = "", file: str = "") -> tuple[str, ...]:
    """Return the branch and level of each message on standard error, without the first line."""
    completed = subprocess.run(
        [sys.executable, "-c", _LOG_EVERYTHING, levels, file],
        env=os.environ | {log.VARIABLE: variable},
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(f"{name} {level}" for level, name in re.findall(r" (\w+) +utvm\.([\w.]+): x\n", completed.stderr))


@pytest.mark.parametrize(
    ("levels", "variable", "debug", "info"),
    [
        ("", "", set(), set()),
        ("info", "", set(), set(log.BRANCHES)),
        ("", "debug", set(log.BRANCHES), set(log.BRANCHES)),
        ("probe.gdb=debug", "debug", {"utvm.probe.gdb"}, {"utvm.probe.gdb"}),
        (
            "utvm.probe=debug,info,cache=error",
            "",
            {"utvm.probe.gdb", "utvm.probe.openocd", "utvm.probe.pyocd", "utvm.probe.relay"},
            set(log.BRANCHES) - {"utvm.cache"},
        ),
    ],
)
def test_level_is_set_by_branch(levels: str, variable: str, debug: set[str], info: set[str]) -> None:
    messages = _messages_on_stderr(levels, variable)
    for level, expected in (("DEBUG", debug), ("INFO", info)):
        assert {
            f"utvm.{name}" for name, name_of_level in map(str.split, messages) if name_of_level == level
        } == expected


def test_log_file_has_everything_and_the_terminal_warnings(tmp_path: Path) -> None:
    messages = _messages_on_stderr("", file=str(tmp_path / "deep" / "file"))
    assert messages == tuple(f"{branch.removeprefix('utvm.')} WARNING" for branch in log.BRANCHES)
    lines = (tmp_path / "deep" / "file").read_text().splitlines()
    assert len(lines) == 1 + 3 * len(log.BRANCHES)
    assert re.fullmatch(r"[\d-]{10} [\d:]{8}\.\d{3} INFO    utvm\.process: this is process \d+: .*", lines[0])
