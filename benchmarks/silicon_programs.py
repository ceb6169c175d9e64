# SPDX-License-Identifier: Apache-2.0
"""C around the programs of silicon.py: what starts them, calls them and reads the counter."""

MAIN = """
#include <stdint.h>
#include <stddef.h>
volatile uint32_t cycles;
#ifndef CYCCNT
#define CYCCNT 0xE0001004
#endif
static uint8_t input[32768] __attribute__((aligned(16))), output[32768] __attribute__((aligned(16)));
%s
#define WORD(address) (*(volatile uint32_t *)(address))
static uint32_t own; /* cycles that the program counted itself */
static void fill(void) {
  for (size_t i = 0; i < sizeof input; i++)
    input[i] = (uint8_t)(i * 2654435761u >> 24);
#if FLOATS
  for (size_t i = 0; i < 640; i++)
    ((float *)input)[i] = (float)(int)(i * 37 %% 256) - 128;
#endif
}
void start(void) {
  WORD(0xE000ED88) |= 0x00F00000; /* CPACR */
  __asm volatile("dsb\\nisb");
  fill();
  run();
  fill();
  WORD(0xE000EDFC) |= 1u << 24; /* DEMCR.TRCENA */
  WORD(0xE0001FB0) = 0xC5ACCE55; /* DWT_LAR */
  WORD(0xE0001000) |= 1;
  const uint32_t before = WORD(CYCCNT);
  run();
  cycles = own ? own : WORD(CYCCNT) - before;
#if SEMIHOSTING
  char text[] = "00000000";
  for (int i = 0; i < 8; i++)
    text[i] = "0123456789abcdef"[cycles >> (28 - 4 * i) & 15];
  __asm volatile("movs r0, #4; mov r1, %%0; bkpt #0xAB; movs r0, #0x18; ldr r1, =0x20026; bkpt #0xAB"
                 : : "r"(text) : "r0", "r1", "memory");
#endif
  __asm volatile("bkpt #0");
}
__attribute__((section(".vectors"), used)) static const uint32_t vectors[] = {STACK, (uint32_t)start};
"""
MICROTVM = """
#include "tvmgen_default.h"
static uint8_t workspace[360000] __attribute__((aligned(16)));
static size_t used;
void *TVMBackendAllocWorkspace(int type, int id, uint64_t bytes, int code, int bits) {
  void *const block = workspace + used;
  (void)type, (void)id, (void)code, (void)bits;
  used += (bytes + 15) & ~15u;
  return block;
}
int TVMBackendFreeWorkspace(int type, int id, void *block) {
  (void)type, (void)id;
  used = (uint8_t *)block - workspace;
  return 0;
}
static void run(void) {
  void *in = input, *out = output;
  tvmgen_default_run((struct tvmgen_default_inputs *)&in, (struct tvmgen_default_outputs *)&out);
}
"""
COREMARK = """
#include "coremark.h"
volatile ee_s32 seed1_volatile, seed2_volatile, seed3_volatile = 0x66, seed4_volatile = ITERATIONS, seed5_volatile;
ee_u32 default_num_contexts = 1;
static uint32_t begin, own;
int coremark(void);
void start_time(void) { begin = *(volatile uint32_t *)CYCCNT; }
void stop_time(void) { own = (*(volatile uint32_t *)CYCCNT - begin) / ITERATIONS; }
CORE_TICKS get_time(void) { return own; }
secs_ret time_in_secs(CORE_TICKS ticks) { return ticks; }
void portable_init(core_portable *port, int *count, char *arguments[]) { port->portable_id = 1; }
void portable_fini(core_portable *port) { port->portable_id = 0; }
int ee_printf(const char *format, ...) { return 0; }
static void run(void) { coremark(); }
"""
EMBENCH = """
#include "support.h"
static uint32_t own;
static void run(void) {
  initialise_benchmark();
  warm_caches(1);
  const uint32_t begin = *(volatile uint32_t *)CYCCNT;
  benchmark();
  own = *(volatile uint32_t *)CYCCNT - begin;
}
"""
PQM4 = """
#include "api.h"
void randombytes(uint8_t *to, size_t size) {
  static uint32_t state = 1;
  while (size--)
    *to++ = (uint8_t)((state = 1103515245 * state + 12345) >> 16);
}
static uint32_t own;
static uint8_t pk[4096], sk[8192], ct[8192], message[8192] = {1}, secret[64];
static size_t length;
#ifdef CRYPTO_CIPHERTEXTBYTES
#define ALL(F) F(keygen, crypto_kem_keypair(pk, sk)) F(encaps, crypto_kem_enc(ct, secret, pk)) \\
  F(decaps, crypto_kem_dec(secret, ct, sk))
#else
#define ALL(F) F(keygen, crypto_sign_keypair(pk, sk)) F(sign, crypto_sign(ct, &length, message, 59, sk)) \\
  F(verify, crypto_sign_open(message, &length, ct, length, pk))
#endif
enum { keygen, encaps, decaps, sign, verify };
#define TIME(name, call) { \\
  const uint32_t begin = *(volatile uint32_t *)CYCCNT; \\
  call; \\
  if (name == OPERATION) \\
    own = *(volatile uint32_t *)CYCCNT - begin; \\
}
static void run(void) {
  ALL(TIME)
}
"""
LOOP = """
static void run(void) {
  __asm volatile("mov r8, %%0; mov r9, %%0; .rept 100; %s; adds r2, #0; .endr"
                 : : "r"(input) : "r0", "r1", "r2", "r8", "r9", "memory");
}
"""
LAYER = """
#include "arm_nnfunctions.h"
static const q7_t weights[64 * 32 * 25] = {1}, bias[64] = {1};
static q15_t buffer[2 * 32 * 25];
static void run(void) { %s; }
"""
CONVOLUTION = "arm_convolve_HWC_q7_%s(in, %d, %d, weights, %d, 5, 2, 1, bias, 0, 9, out, %d, buffer, 0)"
LAYERS = {
    "conv 5x5x3x32": CONVOLUTION % ("RGB", 32, 3, 32, 32),
    "conv 5x5x32x32": CONVOLUTION % ("fast", 16, 32, 32, 16),
    "conv 5x5x32x64": CONVOLUTION % ("fast", 8, 32, 64, 8),
    "pool 3x3": "arm_maxpool_q7_HWC(in, 32, 32, 3, 0, 2, 16, 0, out)",
}
POOL = "arm_avepool_q7_HWC(%s, %d, %d, 3, 0, 2, %d, (q7_t *)buffer, %s)"
LAYERS["CIFAR-10"] = "; ".join(  # as the paper's table has it: its own example in CMSIS has fewer channels
    [
        LAYERS["conv 5x5x3x32"],
        "arm_relu_q7(out, 32768)",
        LAYERS["pool 3x3"].replace("in,", "result,").replace("out)", "in)").replace("result", "out"),
        LAYERS["conv 5x5x32x32"],
        "arm_relu_q7(out, 8192)",
        POOL % ("out", 16, 32, 8, "in"),
        LAYERS["conv 5x5x32x64"],
        "arm_relu_q7(out, 4096)",
        POOL % ("out", 8, 64, 4, "in"),
        "arm_fully_connected_q7_opt(in, weights, 1024, 10, 0, 9, bias, out, buffer)",
    ]
)
ONNC = """
struct tensor { void *data; size_t size; };
struct tensor onnc_get_input_tensor(void), onnc_main(void);
static void run(void) {
  const struct tensor in = onnc_get_input_tensor();
  for (size_t i = 0; i < in.size; i++)
    ((uint8_t *)in.data)[i] = input[i];
  onnc_main();
}
"""
SCRIPT = """
MEMORY { flash (rx) : ORIGIN = %#x, LENGTH = 1M  ram (rw) : ORIGIN = %#x, LENGTH = 484K }
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } > flash
  .ARM.exidx : { *(.ARM.exidx*) } > flash
  .data : { *(.data*) } > ram
  .bss : { *(.bss*) *(COMMON) end = .; } > ram
}
"""
