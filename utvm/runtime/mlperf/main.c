/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor for MLPerf Tiny: it answers the commands of the benchmark's runner (mlcommons/tiny, benchmark/api). A
 * command ends with '%', has at most 80 characters, and is answered by lines, the last of which is "m-ready":
 *
 *   name                m-name-dut-[BOARD]
 *   profile             m-profile-[...], m-model-[TASK]
 *   timestamp           m-lap-us-N
 *   db load N           m-[Expecting N bytes]
 *   db HEX...           takes bytes; after the last, m-load-done
 *   db print            m-buffer-HH-HH-...
 *   infer N W           W runs, then N between two timestamps; m-results-[...]
 *   results             m-results-[...]
 *   help
 *
 * "m-utvm-cycles-N" is utvm's own: the cycles of the N runs alone. Its unit is that of the board's counter, which on
 * virtual boards is not time.
 */
#include <stdbool.h>
#include <string.h>

#include "pipe.h"
#include "task.h"
#include "utvm.h"

#define COMMAND_BYTES 80u
#define DEFAULT_WARMUPS 10u
#define MICROSECONDS 1000000u
#define BYTES_A_LINE 8u
#define LINE_END "\r\n"

#ifdef UTVM_REPORT_THROUGH_PIPE
#define SAY(text, size) utvm_pipe_write((const uint8_t *)(text), (size))
#else
#define SAY(text, size) utvm_port_write((text), (size))
#endif

static const char letters[] = "0123456789abcdef";
static char command[COMMAND_BYTES + 1u];
static uint32_t expected; /* bytes expected of the input, and received */
static uint32_t loaded;

static void say(const char *text) {
  SAY(text, (uint32_t)strlen(text));
}

static void say_number(uint64_t number) {
  char digits[21];
  uint32_t first = (uint32_t)sizeof digits - 1u;
  uint64_t rest = number;
  digits[first] = '\0';
  do {
    first--;
    digits[first] = letters[rest % 10u];
    rest /= 10u;
  } while (rest > 0u);
  say(&digits[first]);
}

static void say_line(const char *before, uint64_t number, const char *after) {
  say(before);
  say_number(number);
  say(after);
  say(LINE_END);
}

static void timestamp(void) {
  say_line("m-lap-us-", (utvm_cycles() * MICROSECONDS) / UTVM_CLOCK_HZ, "");
}

static void say_results(void) {
  say("m-results-[");
  for (uint32_t index = 0u; index < utvm_task_output_count; index++) {
    const int64_t value = utvm_task_thousandths(index);
    const uint64_t size = (value < 0) ? (0u - (uint64_t)value) : (uint64_t)value;
    char digits[4];
    digits[0] = letters[(size / 100u) % 10u];
    digits[1] = letters[(size / 10u) % 10u];
    digits[2] = letters[size % 10u];
    digits[3] = '\0';
    say((index > 0u) ? "," : "");
    say((value < 0) ? "-" : "");
    say_number(size / 1000u);
    say(".");
    say(digits);
  }
  say("]" LINE_END);
}

/* The next word of a command, terminated by a zero; null if there is none. */
static char *next_word(char **rest) {
  char *word = *rest;
  while (*word == ' ') {
    word++;
  }
  *rest = word;
  while ((**rest != ' ') && (**rest != '\0')) {
    (*rest)++;
  }
  if (**rest == ' ') {
    **rest = '\0';
    (*rest)++;
  }
  return (*word == '\0') ? NULL : word;
}

/* Parse a decimal number; false if the word is not one, or too large. */
static bool number_of(const char *word, uint32_t *number) {
  uint64_t value = 0u;
  uint32_t index = 0u;
  while ((word[index] >= '0') && (word[index] <= '9') && (value <= UINT32_MAX)) {
    value = (value * 10u) + (uint32_t)(word[index] - '0');
    index++;
  }
  *number = (uint32_t)value;
  return (index > 0u) && (word[index] == '\0') && (value <= UINT32_MAX);
}

/* Run the model; false, with a message, if it returns an error. */
static bool run(uint32_t times, uint64_t *cycles) {
  for (uint32_t done = 0u; done < times; done++) {
    if (utvm_run(0u) != 0) {
      say("e-[The model returned an error code]" LINE_END);
      return false;
    }
    *cycles += utvm_reply.cycles;
  }
  return true;
}

static void infer(char *rest) {
  uint32_t times = 1u;
  uint32_t warmups = DEFAULT_WARMUPS;
  uint64_t cycles = 0u;
  const char *first = next_word(&rest);
  const char *second = (first == NULL) ? NULL : next_word(&rest);
  if ((first != NULL) && (!number_of(first, &times) || (times == 0u))) {
    say("e-[Inference iterations must be >0]" LINE_END);
  } else if ((second != NULL) && !number_of(second, &warmups)) {
    say("e-[Inference warmup must be >=0]" LINE_END);
  } else {
    say_line("m-warmup-start-", warmups, "");
    if (run(warmups, &cycles)) {
      say("m-warmup-done" LINE_END);
      say_line("m-infer-start-", times, "");
      cycles = 0u;
      timestamp();
      if (run(times, &cycles)) {
        timestamp();
        say("m-infer-done" LINE_END);
        say_line("m-utvm-cycles-", cycles, "");
        say_results();
      }
    }
  }
}

static uint32_t digit_of(char letter) {
  uint32_t digit = 16u;
  if ((letter >= '0') && (letter <= '9')) {
    digit = (uint32_t)(letter - '0');
  } else if ((letter >= 'a') && (letter <= 'f')) {
    digit = (uint32_t)(letter - 'a') + 10u;
  } else if ((letter >= 'A') && (letter <= 'F')) {
    digit = (uint32_t)(letter - 'A') + 10u;
  } else {
    /* no digit */
  }
  return digit;
}

static void take_bytes(const char *hex) {
  const uint32_t length = (uint32_t)strlen(hex);
  if ((length % 2u) != 0u) {
    say("e-[Insufficent number of hex digits]" LINE_END); /* as the benchmark spells it */
    return;
  }
  for (uint32_t index = 0u; (index < length) && (loaded < expected); index += 2u) {
    const uint32_t high = digit_of(hex[index]);
    const uint32_t low = digit_of(hex[index + 1u]);
    if ((high > 15u) || (low > 15u)) {
      const char digits[] = {hex[index], hex[index + 1u], '\0'};
      say("e-[Invalid hex digit '");
      say(digits);
      say("']" LINE_END);
      return;
    }
    utvm_task_input()[loaded] = (uint8_t)((high << 4) | low) ^ utvm_task_flip;
    loaded++;
    if (loaded == expected) {
      utvm_task_take();
      say("m-load-done" LINE_END);
    }
  }
}

static void print_buffer(void) {
  for (uint32_t index = 0u; index < expected; index++) {
    const uint32_t byte = (uint32_t)utvm_task_input()[index] ^ utvm_task_flip;
    const char digits[] = {letters[byte >> 4], letters[byte & 15u], '\0'};
    const bool last = ((index % BYTES_A_LINE) == (BYTES_A_LINE - 1u)) || (index == (expected - 1u));
    say(((index % BYTES_A_LINE) == 0u) ? "m-buffer-" : "");
    say(digits);
    say(last ? LINE_END : "-");
  }
}

static void buffer(char *rest) {
  const char *what = next_word(&rest);
  if (what == NULL) {
    say("e-[Command 'db' requires a subcommand]" LINE_END);
  } else if (strcmp(what, "load") == 0) {
    const char *size = next_word(&rest);
    uint32_t bytes = 0u;
    if (size == NULL) {
      say("e-[Command 'db load' requires the # of bytes]" LINE_END);
    } else if (!number_of(size, &bytes) || (bytes == 0u)) {
      say("e-[Command 'db load' must be >0 bytes]" LINE_END);
    } else if (bytes > utvm_task_input_bytes) {
      say_line("e-[The input has ", utvm_task_input_bytes, " bytes]");
    } else {
      expected = bytes;
      loaded = 0u;
      say_line("m-[Expecting ", bytes, " bytes]");
    }
  } else if (strcmp(what, "print") == 0) {
    print_buffer();
  } else {
    take_bytes(what);
  }
}

static void answer(void) {
  char *rest = command;
  const char *word = next_word(&rest);
  if (word == NULL) {
    /* An empty command, with which a runner flushes the line. */
  } else if (strcmp(word, "name") == 0) {
    say("m-name-dut-[" UTVM_BOARD_NAME "]" LINE_END);
  } else if (strcmp(word, "timestamp") == 0) {
    timestamp();
  } else if (strcmp(word, "profile") == 0) {
    say("m-profile-[ULPMark for tinyML Firmware V0.0.1]" LINE_END "m-model-[");
    say(utvm_programs[0].name);
    say("]" LINE_END);
  } else if (strcmp(word, "infer") == 0) {
    infer(rest);
  } else if (strcmp(word, "results") == 0) {
    say_results();
  } else if (strcmp(word, "db") == 0) {
    buffer(rest);
  } else if (strcmp(word, "help") == 0) {
    say("name, timestamp, profile, db load N, db HEX, db print, infer N [W=10], results" LINE_END);
  } else {
    say("e-[Unknown command: ");
    say(word);
    say("]" LINE_END);
  }
  say("m-ready" LINE_END);
}

void utvm_main(void) {
  uint32_t length = 0u;
  utvm_port_init();
  utvm_cycles_start();
  say("m-timestamp-mode-performance" LINE_END);
  timestamp();
  say("m-init-done" LINE_END "m-ready" LINE_END);
  for (;;) {
    const char letter = (char)utvm_pipe_read();
    if (letter == '%') {
      command[length] = '\0';
      length = 0u;
      answer();
    } else if ((letter != '\r') && (letter != '\n') && (letter != '\0') && (length < COMMAND_BYTES)) {
      command[length] = letter;
      length++;
    } else {
      /* Line ends are not part of a command; one that is too long is truncated. */
    }
  }
}

void utvm_fault_report(void) {
  say_line(LINE_END "e-[Fault, exception ", utvm_fault.exception, "]");
}
