/* SPDX-License-Identifier: Apache-2.0 */
/* What the harness asks of the model under test; case.c is made for each model. */
#ifndef CASE_H
#define CASE_H

#include <stdint.h>

/* Fills working memory with rubbish and puts the inputs of one sample in their places. */
void case_prepare(uint32_t number);

/* Runs the model. Returns what the library returns. */
int32_t case_run(void);

/* Hands each output to print. */
void case_print(void (*print)(const uint8_t *bytes, uint32_t count));

#endif
