# SPDX-License-Identifier: Apache-2.0
"""A headless browser, driven by the W3C's WebDriver: a few JSON requests."""

import base64
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Literal

from utvm.base.process import Service
from utvm.errors import ProvisionError

_QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",
    *("--hide-scrollbars", "--force-device-scale-factor=1", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
)


def driver(folder: Path) -> Service:
    """Return the driver as a service; its log has the port."""
    command = ["chromedriver", "--port=0", f"--log-path={folder / 'chromedriver.log'}"]
    health = r"started successfully on port (\d+)"
    return Service("chromedriver", command, log=folder / "driver.txt", health=health, error=ProvisionError)


class Browser:
    """A browser session that shows one page at a time.

    Args:
        root: URL of the driver.
        profile: folder for the browser's data.
    """

    def __init__(self, root: str, profile: Path) -> None:
        self._base, self._width = root, 800
        options = {"binary": "/usr/bin/chromium", "args": [*_QUIET, f"--user-data-dir={profile}"]}
        timeouts = {"script": 120_000}  # ms: checking a large page takes long on a busy computer.
        capabilities = {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options, "timeouts": timeouts}}
        session = self._request("POST", "/session", {"capabilities": capabilities})
        self._base = f"{root}/session/{session['sessionId']}"

    def close(self) -> None:
        """End the browser."""
        self._request("DELETE", "")

    def set_screen(self, width: int, scheme: Literal["light", "dark"]) -> None:
        """Set the width of the screen and the user's colour scheme."""
        self._width = width
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._devtools("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._devtools("Emulation.setEmulatedMedia", {"features": features})

    def go(self, address: str) -> None:
        """Load the page at an address."""
        self._request("POST", "/url", {"url": address})

    def open(self, page: Path) -> None:
        """Load a page."""
        self.go(page.as_uri())

    def run(self, script: str, *words: object) -> Any:
        """Run the body of a function in the page; return its result, or that of its promise."""
        wrapped = "const done = arguments[arguments.length - 1], values = [...arguments].slice(0, -1);"
        wrapped += f"Promise.resolve((function () {{ {script} }}).apply(null, values)).then(done);"
        return self._request("POST", "/execute/async", {"script": wrapped, "args": list(words)})

    def download_into(self, folder: Path) -> None:
        """Store downloads in a folder without asking."""
        self._devtools("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})

    def press(self, *keys: str) -> None:
        """Press and release keys, one after the other."""
        strokes = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._request("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": strokes}]})

    def screenshot(self, file: Path) -> None:
        """Write a picture of the page, or of its upper part."""
        high = min(self.run("return document.documentElement.scrollHeight;"), 2400)
        clip = {"x": 0, "y": 0, "width": self._width, "height": high, "scale": 1}
        shot = self._devtools("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def _devtools(self, command: str, words: dict[str, object]) -> Any:
        return self._request("POST", "/goog/cdp/execute", {"cmd": command, "params": words})

    def _request(self, method: str, path: str, content: object = None) -> Any:
        data = json.dumps({} if content is None else content).encode() if method == "POST" else None
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None
