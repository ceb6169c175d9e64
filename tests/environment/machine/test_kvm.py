# SPDX-License-Identifier: Apache-2.0
"""Choosing KVM, by the behaviour of QEMU. QEMU is a fake here: a real one depends on the machine."""

from pathlib import Path

import pytest

from tests.environment.machine.conftest import Fake
from utvm.environment.machine import settings
from utvm.errors import ProvisionError

_BOOTS = "echo 'VFS: Unable to mount root fs on unknown-block(0,0)'"
_REFUSES = "echo 'qemu-system-x86_64: error: failed to set MSR 0x10a to 0x69' >&2; kill -ABRT $$"


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "kvm"
    path.touch()
    return path


def test_host_cpu_is_used_if_a_kernel_boots(fake: Fake, device: Path) -> None:
    fake("qemu-system-x86_64", f'case "$*" in *"-accel kvm -cpu host "*) {_BOOTS};; esac')
    acceleration = settings.choose_acceleration(Path("kernel"), device)
    assert (acceleration.driver, acceleration.cpu_mode, acceleration.qemu_cpu) == ("kvm", "host-passthrough", "")


def test_register_that_the_host_refuses_is_disabled(fake: Fake, device: Path) -> None:
    fake("qemu-system-x86_64", f'case "$*" in *arch-capabilities=off*) {_BOOTS};; *) {_REFUSES};; esac')
    acceleration = settings.choose_acceleration(Path("kernel"), device)
    assert (acceleration.driver, acceleration.qemu_cpu) == ("kvm", "host,arch-capabilities=off")


def test_a_hanging_kernel_means_software_emulation(fake: Fake, device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_PATIENCE", 0.3)
    fake("qemu-system-x86_64", f'case "$*" in *arch-capabilities=off*) exec sleep 1000;; *) {_REFUSES};; esac')
    acceleration = settings.choose_acceleration(Path("kernel"), device)
    assert (acceleration.driver, acceleration.cpu_mode) == ("qemu", "maximum")
    assert "failed to set MSR 0x10a" in acceleration.why
    assert "did not boot within" in acceleration.why


def test_qemu_exit_without_a_kernel_start_does_not_count(fake: Fake, device: Path) -> None:
    fake("qemu-system-x86_64", "exit 0")
    assert settings.choose_acceleration(Path("kernel"), device).driver == "qemu"


def test_no_kernel_is_tried_without_kvm(fake: Fake, tmp_path: Path) -> None:
    fake("qemu-system-x86_64", "exit 1")
    acceleration = settings.choose_acceleration(Path("kernel"), tmp_path / "none")
    assert (acceleration.driver, acceleration.why) == ("qemu", f"there is no {tmp_path / 'none'}")


def test_missing_qemu_is_named(fake: Fake, device: Path) -> None:
    with pytest.raises(ProvisionError, match="qemu-system-x86_64 is not installed"):
        settings.choose_acceleration(Path("kernel"), device)
