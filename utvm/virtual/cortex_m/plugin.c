/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of cycles.h for a core that QEMU emulates: a plugin of QEMU (docs/devel/tcg-plugins.rst there). The machine's RAM
 * is a memfd, so this process has it too: in its last eight bytes, the program finds the count as if it were a register,
 * and before it the number of the wait to count, 0 for all cycles. The file named by the argument holds a cycles_t.
 * An instruction whose condition fails costs as much as if it did not: QEMU does not say.
 */
#include "cycles.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of QEMU's plugin interface that this file uses. */
typedef struct block block_t;
typedef struct instruction instruction_t;
typedef void translated_t(uint64_t id, block_t *block);
typedef void executed_t(unsigned int core, void *data);
typedef void accessed_t(unsigned int core, uint32_t access, uint64_t address, void *data);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, translated_t *callback);
void qemu_plugin_register_vcpu_init_cb(uint64_t id, void (*callback)(uint64_t id, unsigned int core));
size_t qemu_plugin_tb_n_insns(const block_t *block);
instruction_t *qemu_plugin_tb_get_insn(const block_t *block, size_t number);
const void *qemu_plugin_insn_data(const instruction_t *instruction);
size_t qemu_plugin_insn_size(const instruction_t *instruction);
uint64_t qemu_plugin_insn_vaddr(const instruction_t *instruction);
void qemu_plugin_register_vcpu_insn_exec_cb(instruction_t *it, executed_t *callback, int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(instruction_t *it, accessed_t *callback, int flags, int kind, void *data);
unsigned int qemu_plugin_mem_size_shift(uint32_t access);
_Bool qemu_plugin_mem_is_store(uint32_t access);
enum { NO_REGISTERS = 0, READS_AND_WRITES = 3 };
extern int qemu_plugin_version;
int qemu_plugin_version = 1;
int qemu_plugin_install(uint64_t id, const void *machine, int count, char **values);

typedef struct {
  volatile uint32_t selected, count;
} shared_t;

static cycles_t state;
static shared_t nowhere, *shared = &nowhere;

static void find_memory(uint64_t id, unsigned int core) {
  char line[512];
  FILE *const maps = fopen("/proc/self/maps", "r");
  (void)id;
  (void)core;
  while (maps && fgets(line, sizeof line, maps)) {
    char *rest = line;
    strtoul(line, &rest, 16);
    if (strstr(line, "/memfd:memory-backend-memfd"))
      shared = (shared_t *)strtoul(rest + 1, NULL, 16) - 1;
  }
  if (maps)
    fclose(maps);
}

/* As the register for the choice has it: cycles, those of a wait, or bytes. */
static uint32_t count_of(uint32_t selected) {
  if (selected == WAITS + 1)
    return (uint32_t)state.flash_bytes;
  return (uint32_t)(selected - 1 < WAITS ? state.waited[selected - 1] : state.cycles);
}

static void execute(unsigned int core, void *address) {
  (void)core;
  utvm_time(&state, utvm_decoded_at(&state, (uint32_t)(uintptr_t)address), (uint32_t)(uintptr_t)address);
  shared->count = count_of(shared->selected);
}

/* QEMU 7.2 reports stores to who asks for loads, and loads only to who asks for both. */
static void access_data(unsigned int core, uint32_t access, uint64_t address, void *data) {
  (void)core;
  (void)data;
  if (!qemu_plugin_mem_is_store(access))
    utvm_time_read(&state, (uint32_t)address, 1u << qemu_plugin_mem_size_shift(access));
}

static void translate(uint64_t id, block_t *block) {
  const size_t count = qemu_plugin_tb_n_insns(block);
  (void)id;
  for (size_t i = 0; i < count; i++) {
    instruction_t *const it = qemu_plugin_tb_get_insn(block, i);
    const uint32_t address = (uint32_t)qemu_plugin_insn_vaddr(it);
    uint16_t words[2] = {0, 0};
    memcpy(words, qemu_plugin_insn_data(it), qemu_plugin_insn_size(it) == 4 ? 4 : 2);
    utvm_decode(&state, address, words[0], words[1]);
    qemu_plugin_register_vcpu_insn_exec_cb(it, execute, NO_REGISTERS, (void *)(uintptr_t)address);
    qemu_plugin_register_vcpu_mem_cb(it, access_data, NO_REGISTERS, READS_AND_WRITES, NULL);
  }
}

int qemu_plugin_install(uint64_t id, const void *machine, int count, char **values) {
  FILE *const file = count == 1 && !strncmp(values[0], "state=", 6) ? fopen(values[0] + 6, "rb") : NULL;
  const int good = file && fread(&state, sizeof state, 1, file) == 1;
  (void)machine;
  if (file)
    fclose(file);
  qemu_plugin_register_vcpu_init_cb(id, find_memory);
  qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
  return !good;
}
