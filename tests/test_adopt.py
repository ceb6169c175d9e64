# SPDX-License-Identifier: Apache-2.0
"""Somebody adopts utvm on a Debian with next to nothing on it: its wheel, a project of their own, a verdict."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.environment.own_engine import missing, own_engine
from utvm.paths import ROOT

_HANDED_ON = ("PIP_", "REQUESTS_CA_BUNDLE", "SSL_CERT_", "CURL_CA_BUNDLE")


@pytest.mark.nightly
@pytest.mark.skipif(bool(missing()), reason=f"this machine lacks {missing()}")
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_the_wheel_takes_a_bare_debian_to_a_verdict(suite: str, tmp_path: Path) -> None:
    system = tmp_path / "system.tar"
    packages = "--include=ca-certificates,git,python3"
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", packages, suite, system], check=True)
    subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "checkout"], check=True)
    # How this computer reaches the web, where that takes more than asking.
    mounts = [f"{path}:{path}:ro" for path in ("/etc/pip.conf", "/etc/ssl/certs") if Path(path).exists()]
    words = [f"--volume={mount}" for mount in (f"{tmp_path / 'checkout'}:/checkout:ro", *mounts)]
    words += [f"--env={name}" for name in os.environ if name.startswith(_HANDED_ON) or name.lower().endswith("_proxy")]
    with own_engine() as place:
        docker = ["docker", f"--host={place}"]
        subprocess.run([*docker, "import", system, "bare"], check=True)
        adopt = ["sh", "-c", "cp -r /checkout /root/checkout && cd /root/checkout && .ci/adopt"]
        done = subprocess.run(
            [*docker, "run", "--rm", "--network=host", *words, "bare", *adopt],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-5000:]
    verdicts = [line.partition(":")[0] for line in done.stdout.splitlines() if line.startswith("PASSED")]
    assert verdicts == ["PASSED on a VIRTUAL stm32f746", "PASSED on a PROCESS host"]
