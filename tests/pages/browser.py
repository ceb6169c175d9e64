# SPDX-License-Identifier: Apache-2.0
"""A browser without a window, driven over WebDriver as the W3C has it: a few requests of JSON."""

import base64
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Literal

from utvm.base.process.service import Service
from utvm.errors import ProvisionError

_QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",
    *("--hide-scrollbars", "--force-device-scale-factor=1", "--host-resolver-rules=MAP * ~NOTFOUND"),
)


def driver(folder: Path) -> Service:
    """Return the driver, as a service; its port is where its log says."""
    command = ["chromedriver", "--port=0", f"--log-path={folder / 'chromedriver.log'}"]
    health = r"started successfully on port (\d+)"
    return Service("chromedriver", command, log=folder / "driver.txt", health=health, error=ProvisionError)


class Browser:
    """A session with a browser that shows one page at a time.

    Args:
        root: URL of the driver.
        profile: folder for what the browser keeps.
    """

    def __init__(self, root: str, profile: Path) -> None:
        self._base, self._width = root, 800
        options = {"binary": "/usr/bin/chromium", "args": [*_QUIET, f"--user-data-dir={profile}"]}
        timeouts = {"script": 120_000}  # ms: the accessibility of a large page on a busy computer.
        wanted = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options, "timeouts": timeouts}}
        made = self._ask("POST", "/session", {"capabilities": wanted})
        self._base = f"{root}/session/{made['sessionId']}"

    def close(self) -> None:
        """End the browser."""
        self._ask("DELETE", "")

    def look(self, width: int, scheme: Literal["light", "dark"]) -> None:
        """Have a screen of this width, and a user who likes it light or dark."""
        self._width = width
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._devtools("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._devtools("Emulation.setEmulatedMedia", {"features": features})

    def open(self, page: Path) -> None:
        """Show a page."""
        self._ask("POST", "/url", {"url": page.as_uri()})

    def run(self, script: str, *words: object) -> Any:
        """Run the body of a function in the page and return what it returns, a promise's result too."""
        wrapped = "const done = arguments[arguments.length - 1], given = [...arguments].slice(0, -1);"
        wrapped += f"Promise.resolve((function () {{ {script} }}).apply(null, given)).then(done);"
        return self._ask("POST", "/execute/async", {"script": wrapped, "args": list(words)})

    def press(self, *keys: str) -> None:
        """Press and release keys, one after the other."""
        strokes = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": strokes}]})

    def screenshot(self, file: Path) -> None:
        """Write a picture of the page, or of as much of it as one looks at."""
        high = min(self.run("return document.documentElement.scrollHeight;"), 2400)
        clip = {"x": 0, "y": 0, "width": self._width, "height": high, "scale": 1}
        shot = self._devtools("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def _devtools(self, command: str, words: dict[str, object]) -> Any:
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": words})

    def _ask(self, method: str, path: str, content: object = None) -> Any:
        data = json.dumps({} if content is None else content).encode() if method == "POST" else None
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None
