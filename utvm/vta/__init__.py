# SPDX-License-Identifier: Apache-2.0
"""The accelerator VTA for people: declare an operator, put its buffers on the chip, build it, run it.

``docs/vta.md`` goes through it step by step; the words are those of TVM's own tutorials for VTA.
"""

from utvm.compiler.targets.vta.env import Env
from utvm.runtime.vta.configuration import Configuration, load_configuration
from utvm.virtual.vta.picture import picture
from utvm.virtual.vta.simulator import VtaSimulator
from utvm.vta.building import build, lower
from utvm.vta.here import connect, program_fpga, serve, simulator

__all__ = [
    "Configuration",
    "Env",
    "VtaSimulator",
    "build",
    "connect",
    "get_env",
    "lower",
    "picture",
    "program_fpga",
    "serve",
    "simulator",
]


def get_env(config: str | None = None) -> Env:
    """Return the VTA that operators are made for.

    Args:
        config: a ``vta_config.json``; by default what ``UTVM_VTA_CONFIG`` names, else the project's.
    """
    return Env(load_configuration(config))
