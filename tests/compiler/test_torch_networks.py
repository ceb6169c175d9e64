# SPDX-License-Identifier: Apache-2.0
"""Networks of torchvision, timm and torchaudio equal PyTorch, are imported, or are refused as listed."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch_networks

from utvm.compiler import reference


def _has(*names: str) -> bool:
    return all(importlib.util.find_spec(name.partition(".")[0]) is not None for name in names)


@pytest.fixture(scope="session")
def warm_caches() -> None:
    torch_networks.warm_up()


def test_a_hundred_networks_are_listed_once() -> None:
    cases = [network.case for network in torch_networks.networks()]
    assert len(cases) == len(set(cases)) >= 100


@pytest.mark.nightly
@pytest.mark.parametrize("network", torch_networks.networks(), ids=lambda network: network.case)
def test_network_is_correct_or_refused_as_listed(
    network: torch_networks.Network, request: pytest.FixtureRequest
) -> None:
    if not _has("torch", "torchvision", network.library):
        pytest.skip(f"{network.library} is not installed")
    request.getfixturevalue("warm_caches")
    expected = "refused" if network.refused else "right" if network.runs else "imported"
    assert torch_networks.judge_in_time(network).partition(":")[0] == expected


@pytest.mark.nightly
@pytest.mark.skipif(not _has("torch"), reason="PyTorch, of the optional extra torch, is not installed")
def test_constants_are_folded_by_pytorch(tmp_path: Path) -> None:
    import torch

    from utvm import compiler

    class Positions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(1, 2, 5, 5))

        def forward(self, picture: torch.Tensor) -> torch.Tensor:
            size = picture.shape[2:]
            return picture + torch.nn.functional.interpolate(self.table, size, mode="bicubic", antialias=True)

    module, picture = Positions(), torch.randn(1, 2, 3, 4)
    torch.export.save(torch.export.export(module, (picture,)), tmp_path / "positions.pt2")
    model = compiler.load(tmp_path / "positions.pt2", run_python=True)
    (result,) = reference(model)([picture.numpy()])
    np.testing.assert_allclose(result, module(picture).detach().numpy(), rtol=1e-5, atol=1e-6)
