/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chain of test access ports behind remote_bitbang: a character sets the pins or requests TDO. Python captures and
 * updates registers. Shifting and the connection are C, since a client waits for a reply at the end of each scan.
 *
 * States: IEEE 1149.1-2013, figure 6-1. Characters: OpenOCD's doc/manual/jtag/drivers/remote_bitbang.txt.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { TAPS = 4, INSTRUCTIONS = 64, CHUNK = 4096 };
/* Special lengths: STREAM passes on 64 bits at a time; EVENT passes on the instruction itself. */
enum { STREAM = 255, EVENT = 254 };
enum state {
  TEST_LOGIC_RESET,
  RUN_TEST_IDLE,
  SELECT_DR,
  CAPTURE_DR,
  SHIFT_DR,
  EXIT1_DR,
  PAUSE_DR,
  EXIT2_DR,
  UPDATE_DR,
  SELECT_IR,
  CAPTURE_IR,
  SHIFT_IR,
  EXIT1_IR,
  PAUSE_IR,
  EXIT2_IR,
  UPDATE_IR
};

/* Next state with TMS low, and with TMS high. */
static const uint8_t next_state[16][2] = {
    [TEST_LOGIC_RESET] = {RUN_TEST_IDLE, TEST_LOGIC_RESET},
    [RUN_TEST_IDLE] = {RUN_TEST_IDLE, SELECT_DR},
    [SELECT_DR] = {CAPTURE_DR, SELECT_IR},
    [CAPTURE_DR] = {SHIFT_DR, EXIT1_DR},
    [SHIFT_DR] = {SHIFT_DR, EXIT1_DR},
    [EXIT1_DR] = {PAUSE_DR, UPDATE_DR},
    [PAUSE_DR] = {PAUSE_DR, EXIT2_DR},
    [EXIT2_DR] = {SHIFT_DR, UPDATE_DR},
    [UPDATE_DR] = {RUN_TEST_IDLE, SELECT_DR},
    [SELECT_IR] = {CAPTURE_IR, TEST_LOGIC_RESET},
    [CAPTURE_IR] = {SHIFT_IR, EXIT1_IR},
    [SHIFT_IR] = {SHIFT_IR, EXIT1_IR},
    [EXIT1_IR] = {PAUSE_IR, UPDATE_IR},
    [PAUSE_IR] = {PAUSE_IR, EXIT2_IR},
    [EXIT2_IR] = {SHIFT_IR, UPDATE_IR},
    [UPDATE_IR] = {RUN_TEST_IDLE, SELECT_DR},
};

typedef struct {
  uint32_t instruction_bits, idcode, idcode_instruction;
  uint32_t instruction, bits, streamed;
  uint64_t shifted;
  uint8_t lengths[INSTRUCTIONS]; /* bits of the register behind each instruction, at most 64; 0: a bypass */
} tap_t;

/* Mirrored in chain.py. The first TAP is the one at TDO. */
typedef struct {
  uint64_t (*capture)(uint32_t tap, uint32_t instruction);
  void (*update)(uint32_t tap, uint32_t instruction, uint64_t value);
  void (*reset)(void);
  uint32_t taps;
  tap_t tap[TAPS];
  uint32_t state, clock, tdo, left;
} chain_t;

static uint32_t length_of(const tap_t *tap) {
  return tap->instruction < INSTRUCTIONS ? tap->lengths[tap->instruction] : 0;
}

static void enter(chain_t *chain, uint32_t number) {
  tap_t *const tap = &chain->tap[number];
  switch (chain->state) {
  case TEST_LOGIC_RESET:
    tap->instruction = tap->idcode_instruction;
    break;
  case CAPTURE_IR: /* the two lowest bits are 01 */
    tap->shifted = 1;
    tap->bits = tap->instruction_bits;
    break;
  case UPDATE_IR:
    tap->instruction = (uint32_t)tap->shifted;
    if (length_of(tap) == EVENT)
      chain->update(number, tap->instruction, 0);
    break;
  case CAPTURE_DR:
    if (tap->instruction == tap->idcode_instruction) {
      tap->shifted = tap->idcode;
      tap->bits = 32;
      break;
    }
    tap->bits = length_of(tap);
    tap->streamed = 0;
    if (tap->bits == STREAM || tap->bits == EVENT || !tap->bits) {
      tap->bits = tap->bits == STREAM ? 64 : 1;
      tap->shifted = 0;
    } else {
      tap->shifted = chain->capture(number, tap->instruction);
    }
    break;
  case UPDATE_DR:
    if (tap->bits > 1 && length_of(tap) != STREAM && tap->instruction != tap->idcode_instruction)
      chain->update(number, tap->instruction, tap->shifted);
    break;
  default:
    break;
  }
}

static void go(chain_t *chain, uint32_t state) {
  chain->state = state;
  for (uint32_t i = 0; i < chain->taps; i++)
    enter(chain, i);
}

static void rise(chain_t *chain, uint32_t tms, uint64_t bit) {
  if (chain->state == SHIFT_DR || chain->state == SHIFT_IR) {
    for (uint32_t i = chain->taps; i-- > 0;) {
      tap_t *const tap = &chain->tap[i];
      const uint64_t out = tap->shifted & 1u;
      tap->shifted = tap->shifted >> 1 | bit << (tap->bits - 1);
      bit = out;
      if (++tap->streamed % 64 == 0 && chain->state == SHIFT_DR && length_of(tap) == STREAM)
        chain->update(i, tap->instruction, tap->shifted);
    }
  }
  go(chain, next_state[chain->state][tms]);
}

/* Execute characters; write a reply for each request of TDO. Returns the number of replies. */
static size_t take(chain_t *chain, const char *input, size_t length, char *answers) {
  size_t answered = 0;
  for (size_t i = 0; i < length; i++) {
    const char c = input[i];
    if (c >= '0' && c <= '7') {
      const uint32_t pins = (uint32_t)(c - '0'), clock = pins >> 2;
      if (clock && !chain->clock)
        rise(chain, pins >> 1 & 1u, pins & 1u);
      /* TDO changes at the falling edge. */
      if (!clock && chain->clock)
        chain->tdo = (uint32_t)(chain->tap[0].shifted & 1u);
      chain->clock = clock;
    } else if (c == 'R') {
      answers[answered++] = (char)('0' + chain->tdo);
    } else if (c >= 'r' && c <= 'u') { /* bit 1 is TRST, bit 0 SRST */
      if ((c - 'r') & 2)
        go(chain, TEST_LOGIC_RESET);
      if ((c - 'r') & 1)
        chain->reset();
    } else if (c == 'Q') {
      chain->left = 1;
    }
  }
  return answered;
}

/* Serve a client until it leaves; returns errno. */
int utvm_bitbang(chain_t *chain, int client) {
  char input[CHUNK], answers[CHUNK];
  chain->left = 0;
  while (!chain->left) {
    const ssize_t got = recv(client, input, sizeof input, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return got ? errno : 0;
    const size_t answered = take(chain, input, (size_t)got, answers);
    for (size_t sent = 0; sent < answered;) {
      const ssize_t done = send(client, answers + sent, answered - sent, MSG_NOSIGNAL);
      if (done < 0 && errno != EINTR)
        return errno;
      if (done > 0)
        sent += (size_t)done;
    }
  }
  return 0;
}
