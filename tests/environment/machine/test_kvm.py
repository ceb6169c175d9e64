# SPDX-License-Identifier: Apache-2.0
"""Whether KVM is chosen, by what QEMU does with it. QEMU is a fake here: a real one is what it is on a machine."""

from pathlib import Path

import pytest

from tests.environment.machine.conftest import Fake
from utvm.environment.machine import settings
from utvm.errors import ProvisionError

_THROUGH = "echo 'VFS: Unable to mount root fs on unknown-block(0,0)'"
_REFUSES = "echo 'qemu-system-x86_64: error: failed to set MSR 0x10a to 0x69' >&2; kill -ABRT $$"


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "kvm"
    path.touch()
    return path


def test_where_a_kernel_starts_the_cpu_is_the_computer_s(fake: Fake, device: Path) -> None:
    fake("qemu-system-x86_64", f'case "$*" in *"-accel kvm -cpu host "*) {_THROUGH};; esac')
    chosen = settings.choose_acceleration(Path("kernel"), device)
    assert (chosen.driver, chosen.cpu_mode, chosen.qemu_cpu) == ("kvm", "host-passthrough", "")


def test_a_register_that_the_host_refuses_is_left_out(fake: Fake, device: Path) -> None:
    fake("qemu-system-x86_64", f'case "$*" in *arch-capabilities=off*) {_THROUGH};; *) {_REFUSES};; esac')
    chosen = settings.choose_acceleration(Path("kernel"), device)
    assert (chosen.driver, chosen.qemu_cpu) == ("kvm", "host,arch-capabilities=off")


def test_a_hanging_kernel_means_software_emulation(fake: Fake, device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_PATIENCE", 0.3)
    fake("qemu-system-x86_64", f'case "$*" in *arch-capabilities=off*) exec sleep 1000;; *) {_REFUSES};; esac')
    chosen = settings.choose_acceleration(Path("kernel"), device)
    assert (chosen.driver, chosen.cpu_mode) == ("qemu", "maximum")
    assert "failed to set MSR 0x10a" in chosen.why
    assert "did not boot within" in chosen.why


def test_qemu_exit_without_a_kernel_start_does_not_count(fake: Fake, device: Path) -> None:
    fake("qemu-system-x86_64", "exit 0")
    assert settings.choose_acceleration(Path("kernel"), device).driver == "qemu"


def test_without_kvm_nothing_is_tried(fake: Fake, tmp_path: Path) -> None:
    fake("qemu-system-x86_64", "exit 1")
    chosen = settings.choose_acceleration(Path("kernel"), tmp_path / "none")
    assert (chosen.driver, chosen.why) == ("qemu", f"there is no {tmp_path / 'none'}")


def test_without_qemu_that_is_said(fake: Fake, device: Path) -> None:
    with pytest.raises(ProvisionError, match="qemu-system-x86_64 is not installed"):
        settings.choose_acceleration(Path("kernel"), device)
