/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace: stimulus ports (ITM: ARM DDI 0403E, C1.7; packets: D4) and the port that sends them (TPIU: C1.10; frames: ARM
 * IHI 0029E, D4.2). No packets of the DWT, no synchronization, no overflow: the FIFO is never full.
 */
#include <stdint.h>
#include <string.h>

enum { PORTS_END = 0x80, TER = 0xE00, TPR = 0xE40, TCR = 0xE80, LAR = 0xFB0, LSR = 0xFB4 };
enum { SSPSR = 0x00, CSPSR = 0x04, ACPR = 0x10, SPPR = 0xF0, FFSR = 0x300, FFCR = 0x304 };
enum { ITMENA = 1, TSENA = 2, UART = 2, ENFCONT = 2, FRAME = 16 };
enum { BY_DEBUGGER, BY_PRIVILEGED, BY_UNPRIVILEGED };

typedef struct {
  uint32_t enabled; /* DEMCR.TRCENA */
  uint32_t size;    /* bytes of the pin SWO, from the last store */
  uint8_t bytes[64];
  /* private */
  uint32_t ports, private_ports, control, open;
  uint32_t width, prescaler, protocol, formatter;
  uint32_t stamped; /* time of the last timestamp */
  uint32_t source, filled;
  uint8_t frame[FRAME];
} trace_t;

void utvm_trace_reset(trace_t *trace, uint32_t formatter) {
  memset(trace, 0, sizeof *trace);
  trace->width = 1;
  trace->protocol = 1; /* Manchester */
  trace->formatter = formatter;
  trace->source = 0xFF;
}

static void put_in_frame(trace_t *trace, uint8_t byte, uint32_t low_bit) {
  trace->frame[FRAME - 1] |= (uint8_t)(low_bit << trace->filled / 2);
  trace->frame[trace->filled++] = byte;
  if (trace->filled == FRAME - 1) {
    memcpy(trace->bytes + trace->size, trace->frame, FRAME);
    trace->size += FRAME;
    memset(trace->frame, 0, FRAME);
    trace->filled = 0;
  }
}

static void put(trace_t *trace, uint32_t byte) {
  const uint32_t source = trace->control >> 16 & 0x7Fu;
  uint32_t even;
  if (!(trace->formatter & ENFCONT)) {
    trace->bytes[trace->size++] = (uint8_t)byte;
    return;
  }
  if (source != trace->source && trace->filled % 2 == 0) {
    trace->source = source;
    put_in_frame(trace, (uint8_t)(source << 1 | 1u), 0);
  }
  even = ~trace->filled & 1u; /* such a byte has its lowest bit at the end of the frame */
  put_in_frame(trace, (uint8_t)(byte & ~even), byte & even);
}

/* A local timestamp: ticks since the last one, divided by TSPrescale; at most 28 bits in groups of seven. */
static void put_timestamp(trace_t *trace, uint32_t now) {
  uint32_t ticks = (now - trace->stamped) >> 2 * (trace->control >> 8 & 3u);
  trace->stamped = now;
  if (ticks > 0 && ticks < 7) {
    put(trace, ticks << 4);
    return;
  }
  put(trace, 0xC0);
  ticks = ticks < 1u << 28 ? ticks : (1u << 28) - 1;
  for (; ticks > 0x7F; ticks >>= 7)
    put(trace, (ticks & 0x7Fu) | 0x80u);
  put(trace, ticks);
}

static uint32_t sends(const trace_t *trace, uint32_t port) {
  return trace->enabled && (trace->control & ITMENA) && (trace->ports >> port & 1u);
}

static void store_to_port(trace_t *trace, uint32_t port, uint32_t size, uint32_t value, uint32_t now) {
  if (!sends(trace, port) || trace->protocol != UART)
    return;
  put(trace, port << 3 | (size == 4 ? 3 : size));
  for (; size > 0; size--, value >>= 8)
    put(trace, value & 0xFFu);
  if (trace->control & TSENA)
    put_timestamp(trace, now);
}

uint32_t utvm_itm_load(const trace_t *trace, uint32_t offset) {
  if (offset < PORTS_END)
    return sends(trace, offset / 4);
  return offset == TER   ? trace->ports
         : offset == TPR ? trace->private_ports
         : offset == TCR ? trace->control
         : offset == LSR ? 1u | (trace->open ? 0u : 2u)
                         : 0u;
}

void utvm_itm_store(trace_t *trace, uint32_t offset, uint32_t size, uint32_t value, uint32_t by, uint32_t now) {
  trace->size = 0;
  if (offset < PORTS_END) {
    if (by != BY_UNPRIVILEGED || !(trace->private_ports >> offset / 32 & 1u))
      store_to_port(trace, offset / 4, size, value, now);
  } else if (offset == LAR) {
    trace->open = by ? value == 0xC5ACCE55u : trace->open;
  } else if (by && !trace->open) {
    return;
  } else if (offset == TER) {
    trace->ports = value;
  } else if (offset == TPR) {
    trace->private_ports = value & 0xFu;
  } else if (offset == TCR) {
    trace->control = value & 0x007F0F1Fu;
  }
}

/* Port widths of 1, 2 and 4; FtStopped */
uint32_t utvm_tpiu_load(const trace_t *trace, uint32_t offset) {
  return offset == SSPSR   ? 0xBu
         : offset == CSPSR ? trace->width
         : offset == ACPR  ? trace->prescaler
         : offset == SPPR  ? trace->protocol
         : offset == FFSR  ? 8u
         : offset == FFCR  ? trace->formatter
                           : 0u;
}

void utvm_tpiu_store(trace_t *trace, uint32_t offset, uint32_t size, uint32_t value, uint32_t by, uint32_t now) {
  (void)size, (void)by, (void)now;
  trace->size = 0;
  if (offset == CSPSR)
    trace->width = value;
  else if (offset == ACPR)
    trace->prescaler = value & 0x1FFFu;
  else if (offset == SPPR)
    trace->protocol = value & 3u;
  else if (offset == FFCR)
    trace->formatter = value;
}
