# SPDX-License-Identifier: Apache-2.0
"""Programs that misuse VTA, and the expected messages."""

import dataclasses

from hil_tests.programs import handwritten
from utvm.compiler import Library


def faulty(name: str, body: str, identity: str) -> Library:
    """Build a program that misuses the accelerator."""
    headers = '#include <string.h>\n#include "vta.h"\n#include "vta_device.h"'
    return dataclasses.replace(handwritten(name, f"{body}\n  return 0;", headers), accelerator=identity)


_BAD_ADDRESS = """
  static uint8_t data[1024];
  (void)VTABufferMap(data, sizeof data);
  (void)VTALoadBuffer2D(data, sizeof data / VTA_INP_ELEMENT_BYTES - 1u, 2, 1, 2, 0, 0, 0, 0, 0, VTA_INP);
  (void)VTASynchronize();
"""
_DEADLOCK = """
  vta_instruction run[2];
  vta_fault fault;
  memset(run, 0, sizeof run);
  vta_put(&run[0], VTA_FIELD_OPCODE, VTA_OPCODE_LOAD);
  vta_put(&run[0], VTA_LOAD_MEM, VTA_WGT);
  vta_put(&run[0], VTA_LOAD_SRAM, 5);
  vta_put(&run[0], VTA_LOAD_POP_NEXT, 1);
  vta_put(&run[1], VTA_FIELD_OPCODE, VTA_OPCODE_FINISH);
  if (vta_device_run(run, 2, &fault) != 0) {
    vta_failed(&fault);
  }
"""
_TOO_LARGE = """
  static uint8_t data[1024];
  (void)VTABufferMap(data, sizeof data);
  (void)VTALoadBuffer2D(data, 0, 1, 1, 1, 0, 0, 0, 0, VTA_ACC_DEPTH, VTA_ACC);
  (void)VTASynchronize();
"""
FAULTS = {
    "bad_address": (
        _BAD_ADDRESS,
        r"VTA, while queueing \(load mem=INP .*x_size=2.*\): a transfer leaves its buffer in DRAM, at element",
    ),
    "deadlock": (
        _DEADLOCK,
        r"VTA: instruction 0 \(load .*mem=WGT sram=5 .*\): deadlock: waits for a token that nobody hands on",
    ),
    "too_large": (_TOO_LARGE, r"VTA, while queueing \(load mem=ACC .*\): a tile does not fit into its memory"),
}
