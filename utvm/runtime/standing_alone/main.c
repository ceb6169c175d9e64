/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor that needs no host: it runs the image's one model on the inputs that are stored in the image, prints
 * the outputs on the console, and stops. Without a console, a debug probe reads them. A checksum lets the reader detect
 * a damaged report:
 *
 *   utvm: BOARD is up
 *   utvm: result MODEL
 *   utvm: reset CAUSE           cause of the last reset, in words
 *   utvm: status XXXXXXXX       return value of the model
 *   utvm: cycles XXXXXXXXXXXXXXXX
 *   utvm: stack XXXXXXXX        bytes used since reset, at most
 *   utvm: output XXXXXXXX       for each output, its bytes; then the bytes, up to 32 a line
 *   utvm: data XX...
 *   utvm: end XXXXXXXX          CRC-32 of the report so far, from the "u" of its first line to the line before this
 *
 * A fault is a separate report. It may interrupt a line, so an empty line precedes it:
 *
 *   utvm: fault XXXXXXXX        bytes of utvm_fault_t; then the bytes
 *   utvm: data XX...
 *   utvm: trace XXXXXXXX        bytes of the stack that goes with it; then the bytes
 *   utvm: data XX...
 *   utvm: end XXXXXXXX
 *
 * Lines end with CR and LF. Digits are lower-case hexadecimal, the highest digit of a number first; data is in memory
 * order. The CRC is that of Ethernet and zlib.
 */
#include "stored.h"
#include "utvm.h"

#ifdef UTVM_REPORT_THROUGH_PIPE
#include "pipe.h"
#define SAY(text, size) utvm_pipe_write((const uint8_t *)(text), (size))
#else
#define SAY(text, size) utvm_port_write((text), (size))
#endif

#define PREFIX "utvm: "
#define LINE_END "\r\n"
#define BYTES_A_LINE 32u
#define CRC_POLYNOMIAL 0xEDB88320u
#define WORD_DIGITS 8u

static uint32_t crc;

static void write_character(char character) {
  crc ^= (uint8_t)character;
  for (uint32_t bit = 0u; bit < 8u; bit++) {
    crc = (crc >> 1) ^ (((crc & 1u) != 0u) ? CRC_POLYNOMIAL : 0u);
  }
  SAY(&character, 1u);
}

static void write_text(const char *text) {
  for (uint32_t index = 0u; text[index] != '\0'; index++) {
    write_character(text[index]);
  }
}

static void write_hex(uint32_t number, uint32_t digits) {
  static const char hexadecimal[] = "0123456789abcdef";
  for (uint32_t left = digits; left > 0u; left--) {
    write_character(hexadecimal[(number >> (4u * (left - 1u))) & 0xFu]);
  }
}

static void write_number(const char *name, uint32_t number) {
  write_text(name);
  write_hex(number, WORD_DIGITS);
  write_text(LINE_END);
}

static void write_data(const char *name, const uint8_t *data, uint32_t count) {
  write_number(name, count);
  for (uint32_t index = 0u; index < count; index++) {
    const uint32_t column = index % BYTES_A_LINE;
    if (column == 0u) {
      write_text(PREFIX "data ");
    }
    write_hex(data[index], 2u);
    if ((column == (BYTES_A_LINE - 1u)) || (index == (count - 1u))) {
      write_text(LINE_END);
    }
  }
}

static void begin_report(void) {
  crc = 0xFFFFFFFFu;
}

static void end_report(void) {
  write_number(PREFIX "end ", ~crc);
}

void utvm_main(void) {
  utvm_port_init();
  utvm_cycles_start();
  write_text(PREFIX UTVM_BOARD_NAME " is up" LINE_END);
  (void)utvm_run(0u);
  /* Printing uses stack, too. */
  const uint32_t stack_used = utvm_stack_used();

  begin_report();
  write_text(PREFIX "result ");
  write_text(utvm_programs[0].name);
  write_text(LINE_END PREFIX "reset ");
  write_text(utvm_port_reset_cause());
  write_number(LINE_END PREFIX "status ", (uint32_t)utvm_reply.status);
  write_text(PREFIX "cycles ");
  write_hex((uint32_t)(utvm_reply.cycles >> 32), WORD_DIGITS);
  write_number("", (uint32_t)utvm_reply.cycles);
  write_number(PREFIX "stack ", stack_used);
  for (uint32_t output = 0u; output < utvm_stored_output_count; output++) {
    write_data(PREFIX "output ", utvm_programs[0].outputs[output], utvm_stored_output_bytes[output]);
  }
  end_report();
}

void utvm_fault_report(void) {
  uint32_t bytes;
  const uint8_t *stack = utvm_fault_stack(&bytes);
  write_text(LINE_END);
  begin_report();
  write_data(PREFIX "fault ", (const uint8_t *)&utvm_fault, (uint32_t)sizeof utvm_fault);
  write_data(PREFIX "trace ", stack, bytes);
  end_report();
}
