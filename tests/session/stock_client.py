# SPDX-License-Identifier: Apache-2.0
"""TVM's own RPC client in a process of its own.

It keeps Python's lock while it frees remote functions, and waits for the server's answer meanwhile: a bridge in the
same process could not answer.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from utvm.session.bridge import Bridge
from utvm.session.transport import ChildProcess

_PROGRAM = """
import json, sys
from tvm import rpc
names = {"rpc": rpc}
print("ready", flush=True)
for line in sys.stdin:
    code, answer = json.loads(line), {}
    try:
        try:
            parsed = compile(code, "test", "eval")
        except SyntaxError:
            exec(code, names)
        else:
            answer["value"] = eval(parsed, names)
    except Exception as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(answer, default=repr), flush=True)
"""


class ClientError(Exception):
    """An error of TVM's client: its type's name and its message."""


class StockClient:
    """Runs pieces of Python in the client's process. They share their names, ``rpc`` among them."""

    def __init__(self, log: Path) -> None:
        self._process = ChildProcess("the client", [sys.executable, "-c", _PROGRAM], log=log)
        self._received = b""

    def __enter__(self) -> "StockClient":
        self._process.__enter__()
        assert self._line() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()

    def __call__(self, code: str) -> Any:
        """Evaluate an expression, or execute statements. Raises ClientError for an error in the client."""
        self._process.write(json.dumps(code).encode() + b"\n")
        answer = json.loads(self._line())
        if "error" in answer:
            raise ClientError(answer["error"])
        return answer.get("value")

    def connect(self, bridge: Bridge, key: str, *, timeout: float = 0) -> None:
        """Start a session, and get functions with the same names as the board's."""
        self(f"session = rpc.connect('127.0.0.1', {bridge.port}, key={key!r}, session_timeout={timeout})")
        for name in ("add_one", "refuse", "fault", "hang"):
            self(f"{name} = session.get_function('test.{name}')")

    def leave(self) -> None:
        """Free the session and all that belongs to it."""
        self("session = add_one = refuse = fault = hang = None")

    def _line(self) -> str:
        deadline = time.monotonic() + 180
        while b"\n" not in self._received:
            assert time.monotonic() < deadline, "the client does not answer"
            self._received += self._process.read(1.0)
        line, self._received = self._received.split(b"\n", 1)
        return line.decode()
