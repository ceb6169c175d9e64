/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The board's counters, as text.
 */
#ifndef UTVM_STATS_H
#define UTVM_STATS_H

#include "call.h"

/** utvm.stats(): all counters as one JSON object; docs/rpc.md has its fields. */
bool utvm_tell_stats(const utvm_call_t *call);

#endif
