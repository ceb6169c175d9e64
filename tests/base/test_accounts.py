# SPDX-License-Identifier: Apache-2.0
"""Commands under accounts as CI has them: each command works, or names the setting that is missing."""

import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.portions import by_day
from utvm.paths import ROOT

_COMMANDS = (
    ("cache.prune", "--dry-run"),
    ("doctor",),
    ("farm.list",),
    ("model.run", "models/digits/digits.onnx", "--board", "host"),
    ("hil", "--board", "host", "--suite", "health"),
)
# A user without an entry in passwd, who may read every file and write none of the project's.
_STRANGER = (
    *("setpriv", "--reuid=23456", "--regid=23456", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)


@dataclass(frozen=True)
class _Account:
    """An account: its variables, the command that starts others under it, and the commands that work there."""

    variables: Mapping[str, str] = field(default_factory=dict)
    starter: Sequence[str] = ()
    without: Sequence[str] = ()
    works: Sequence[str] = ("cache.prune", "doctor", "model.run", "hil")


_ACCOUNTS = {
    "no HOME": _Account(starter=_STRANGER, without=("HOME",), works=("doctor",)),
    "HOME is /": _Account({"HOME": "/"}, starter=_STRANGER, works=("cache.prune", "doctor")),
    "HOME is a file": _Account({"HOME": "{folder}/file"}, works=()),
    "unknown user, another's checkout": _Account({"HOME": "{folder}/home"}, starter=_STRANGER),
    "proxy, LANG=C, long TMPDIR": _Account(
        {
            **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9"),
            **{"LANG": "C", "LC_ALL": "C", "TMPDIR": "{folder}/" + "t" * 180},
        }
    ),
}


def _run(root: Path, account: _Account, folder: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    # The folder for logs of the tests belongs to their own user.
    without = (*account.without, "XDG_STATE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in without}
    for name, value in account.variables.items():
        environment[name] = value.replace("{folder}", str(folder))
    return subprocess.run(
        [*account.starter, root / "inv", *words],
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _check(root: Path, account: _Account, folder: Path) -> None:
    for words in _COMMANDS:
        completed = _run(root, account, folder, words)
        output = f"{words[0]}: exit code {completed.returncode}\n{completed.stdout}{completed.stderr}"
        assert "Traceback" not in output
        if words[0] in account.works:
            assert completed.returncode == 0, output
        else:
            assert completed.returncode in (2, 3), output
            assert (output.count("error: "), output.count("hint: ")) == (1, 1), output


@pytest.mark.slow
@pytest.mark.parametrize("name", by_day(_ACCOUNTS, "no HOME", "unknown user, another's checkout"))
def test_command_works_or_names_the_missing_setting(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    account = _ACCOUNTS[name]
    if account.starter and os.getuid() != 0:
        pytest.skip("needs root, to be another user")
    folder = tmp_path_factory.mktemp("account")
    (folder / "file").touch()
    (folder / ("t" * 180)).mkdir()
    (folder / "home").mkdir()
    (folder / "home").chmod(0o777)
    for parent in (folder, folder.parent, folder.parent.parent):
        parent.chmod(parent.stat().st_mode | 0o011)
    _check(ROOT, account, folder)


@pytest.mark.slow
def test_path_of_the_checkout_may_have_any_character(tmp_path: Path) -> None:
    root = tmp_path / "a '$HOME' \"b\" é" / "utvm"
    left_out = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", "*_cache")
    shutil.copytree(ROOT, root, ignore=left_out, symlinks=True)
    _check(root, _Account({"UTVM_VENV": str(ROOT / ".venv"), "PYTHONPATH": str(root)}), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("no_proxy", ["", "example.com"])
def test_loopback_bypasses_the_proxy(no_proxy: str) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        program = (
            "import urllib.request\nfrom utvm.base.process.signals import prepare_environment\n"
            "prepare_environment()\n"
            f"urllib.request.urlopen('http://127.0.0.1:{server.server_port}/')"
        )
        proxies = {"http_proxy": "http://127.0.0.1:9", "no_proxy": no_proxy, "no_grpc_proxy": no_proxy}
        completed = subprocess.run(
            [sys.executable, "-c", program], env=os.environ | proxies, capture_output=True, text=True, check=False
        )
        server.shutdown()
    assert completed.returncode == 0, completed.stderr
