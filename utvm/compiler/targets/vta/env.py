# SPDX-License-Identifier: Apache-2.0
"""Parameters of a VTA for authors of operators, by the names of VTA's tutorials."""

from dataclasses import dataclass

from utvm.runtime.vta.configuration import Configuration

INP, WGT, ACC = "local.inp_buffer", "local.wgt_buffer", "local.acc_buffer"
MEMORY_OF = {INP: "INP", WGT: "WGT", ACC: "ACC"}
"""Scopes of on-chip buffers and their memories."""

DOUBLE_BUFFER = "vta.double_buffer"
"""Loop annotation: on-chip buffers are doubled; one iteration loads while another computes."""


@dataclass(frozen=True)
class Env:
    """A VTA for operators. A GEMM multiplies BATCH x BLOCK_IN inputs by BLOCK_OUT x BLOCK_IN weights."""

    configuration: Configuration

    inp_dtype = wgt_dtype = out_dtype = "int8"
    acc_dtype = "int32"
    inp_scope, wgt_scope, acc_scope = INP, WGT, ACC
    double_buffer = DOUBLE_BUFFER

    @property
    def TARGET(self) -> str:
        return self.configuration.file.TARGET

    @property
    def BATCH(self) -> int:
        return self.configuration.batch

    @property
    def BLOCK_IN(self) -> int:
        return self.configuration.block

    @property
    def BLOCK_OUT(self) -> int:
        return self.configuration.block

    @property
    def BITSTREAM(self) -> str:
        return self.configuration.bitstream

    def depth(self, scope: str) -> int:
        return self.configuration.memories[MEMORY_OF[scope]].depth

    def lanes(self, scope: str) -> int:
        inputs = self.BATCH * self.BLOCK_IN
        return {INP: inputs, WGT: self.BLOCK_OUT * self.BLOCK_IN, ACC: inputs}[scope]
