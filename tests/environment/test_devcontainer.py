# SPDX-License-Identifier: Apache-2.0
"""The devcontainer's settings agree with utvm's image, give no privileges, and work in a real engine."""

import json
import re
from typing import Any

import docker
import pytest

from utvm.environment.image import CHECKOUT, NAME, VENV
from utvm.paths import ROOT

_FILE = ROOT / ".devcontainer" / "devcontainer.json"
_USB = '// "--mount='


def _settings(text: str) -> dict[str, Any]:
    """Read JSON with comments, which are on separate lines."""
    return dict(json.loads(re.sub(r"(?m)^\s*//.*$", "", text)))


@pytest.fixture
def settings() -> dict[str, Any]:
    return _settings(_FILE.read_text())


def _mount(words: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words.split(","))


def test_image_and_folders_are_those_of_docker_run(settings: dict[str, Any]) -> None:
    dockerfile = (_FILE.parent / settings["build"]["dockerfile"]).resolve()
    assert dockerfile == ROOT / "docker" / "Dockerfile"
    assert (_FILE.parent / settings["build"]["context"]).resolve() == dockerfile.parent
    image = f"{NAME}:latest"
    assert settings["initializeCommand"][-1] == image
    assert f"\nFROM {image}\n" in dockerfile.read_text()
    for argument in settings["build"]["args"]:
        assert f"\nARG {argument}=" in dockerfile.read_text()
    assert settings["workspaceFolder"] == CHECKOUT
    assert _mount(settings["workspaceMount"]) == {
        "type": "bind",
        "source": "${localWorkspaceFolder}",
        "target": CHECKOUT,
    }
    assert settings["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"] == f"{VENV}/bin/python"


def test_settings_give_no_privileges(settings: dict[str, Any]) -> None:
    assert settings["containerUser"] == settings["build"]["args"]["ACCOUNT"] != "root"
    assert settings["updateRemoteUserUID"] is True
    assert {"--cap-drop=ALL", "--security-opt=no-new-privileges"} <= set(settings["runArgs"])
    text = _FILE.read_text()
    assert not re.search(r"privileged|capAdd|docker\.sock", text)


def test_probe_needs_one_uncommented_line() -> None:
    text = _FILE.read_text()
    assert text.count(_USB) == 1
    arguments = _settings(text.replace(_USB, _USB.removeprefix("// ")))["runArgs"]
    (mount,) = [_mount(word.removeprefix("--mount=")) for word in arguments if word.startswith("--mount=")]
    assert mount == {"type": "bind", "source": "/dev/bus/usb", "target": "/dev/bus/usb"}
    # 189 is the kernel's number for USB devices: the rule also covers devices that are plugged in later.
    assert "--device-cgroup-rule=c 189:* rmw" in arguments


@pytest.mark.slow
def test_user_works_in_the_checkout(engine: str, build_output: dict[str, Any], settings: dict[str, Any]) -> None:
    client = docker.DockerClient(base_url=engine)
    context = str((_FILE.parent / settings["build"]["context"]).resolve())
    image, _ = client.images.build(path=context, buildargs=settings["build"]["args"], network_mode="none", rm=True)
    try:
        output = client.containers.run(
            image.id,
            ["sh", "-c", "id -un; test -w ~ && pwd; grep CapBnd /proc/self/status; ./inv board.list"],
            user=settings["containerUser"],
            working_dir=settings["workspaceFolder"],
            volumes={str(ROOT): {"bind": settings["workspaceFolder"], "mode": "rw"}},
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            init=True,
            remove=True,
        ).decode()
    finally:
        client.images.remove(image.id)
        client.close()
    assert output.split()[:4] == [settings["containerUser"], settings["workspaceFolder"], "CapBnd:", "0" * 16]
    assert "stm32f746" in output
