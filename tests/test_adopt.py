# SPDX-License-Identifier: Apache-2.0
"""First use on a minimal Debian: utvm's wheel, a new project, a verdict."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.environment.own_engine import missing, own_engine
from utvm.paths import ROOT

_PASSED_ON = ("PIP_", "REQUESTS_CA_BUNDLE", "SSL_CERT_", "CURL_CA_BUNDLE")


@pytest.mark.nightly
@pytest.mark.skipif(bool(missing()), reason=f"this machine lacks {missing()}")
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_wheel_gives_a_verdict_on_a_minimal_debian(suite: str, tmp_path: Path) -> None:
    system = tmp_path / "system.tar"
    packages = "--include=ca-certificates,git,python3"
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", packages, suite, system], check=True)
    subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / "checkout"], check=True)
    # This computer's settings for access to the web.
    mounts = [f"{path}:{path}:ro" for path in ("/etc/pip.conf", "/etc/ssl/certs") if Path(path).exists()]
    options = [f"--volume={mount}" for mount in (f"{tmp_path / 'checkout'}:/checkout:ro", *mounts)]
    options += [
        f"--env={name}" for name in os.environ if name.startswith(_PASSED_ON) or name.lower().endswith("_proxy")
    ]
    with own_engine() as address:
        docker = ["docker", f"--host={address}"]
        subprocess.run([*docker, "import", system, "bare"], check=True)
        adopt = ["sh", "-c", "cp -r /checkout /root/checkout && cd /root/checkout && .ci/adopt"]
        completed = subprocess.run(
            [*docker, "run", "--rm", "--network=host", *options, "bare", *adopt],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    assert completed.returncode == 0, completed.stdout[-5000:]
    verdicts = [line.partition(":")[0] for line in completed.stdout.splitlines() if line.startswith("PASSED")]
    assert verdicts == ["PASSED on a VIRTUAL stm32f746", "PASSED on a PROCESS host"]
