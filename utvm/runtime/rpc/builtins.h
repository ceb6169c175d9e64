/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The list of the functions that every board has.
 */
#ifndef UTVM_BUILTINS_H
#define UTVM_BUILTINS_H

/** Register the list for function look-up: once, after reset. */
void utvm_builtins_init(void);

#endif
