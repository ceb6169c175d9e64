/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Short texts without printf, which would take more flash than the rest.
 */
#ifndef UTVM_TEXT_H
#define UTVM_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/** Maximum length of a text; longer ones are truncated. */
#define UTVM_TEXT_BYTES 640u

/** A text that is being written. */
typedef struct {
  uint32_t length;
  uint8_t bytes[UTVM_TEXT_BYTES];
} utvm_text_t;

/** Clear the text. */
void utvm_text_clear(utvm_text_t *text);

/** Add a zero-terminated string. */
void utvm_text_add(utvm_text_t *text, const char *words);

/** Add bytes. */
void utvm_text_add_bytes(utvm_text_t *text, const uint8_t *bytes, uint32_t count);

/** Add a number in decimal digits. */
void utvm_text_add_number(utvm_text_t *text, int64_t number);

/** Return whether the bytes equal a name, without its terminating zero. */
bool utvm_text_is(const char *name, const uint8_t *bytes, uint32_t count);

#endif
