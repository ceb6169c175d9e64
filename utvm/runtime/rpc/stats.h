/**
 * What the board counts, as text.
 */
#ifndef UTVM_STATS_H
#define UTVM_STATS_H

#include "text.h"

/** Write all counters as one JSON object; docs/rpc.md has its fields. */
void utvm_stats_write(utvm_text_t *text);

#endif
