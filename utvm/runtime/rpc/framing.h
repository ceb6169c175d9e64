/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Packets on a stream of bytes that may lose, change or add bytes: microTVM's framing.
 *
 * A packet is FF FD, the payload's length (32 bits, little-endian), the payload, and a CRC-16/CCITT-FALSE of the
 * bytes on the wire from FF FD up to the CRC (polynomial 0x1021, initial value 0xFFFF; 16 bits, little-endian).
 * After FF FD, a byte FF is sent as FF FF. FF FE means nothing; FF FD always begins a packet.
 */
#ifndef UTVM_FRAMING_H
#define UTVM_FRAMING_H

#include <stdbool.h>
#include <stdint.h>

/** A receiver of packets. */
typedef struct {
  uint8_t *payload;    /**< where payloads go */
  uint32_t limit;      /**< bytes there: longer packets are dropped */
  uint32_t length;     /**< bytes of the payload */
  uint32_t position;   /**< received bytes of length, payload and CRC */
  uint16_t crc;        /**< of the received bytes */
  uint16_t sent_crc;   /**< received from the sender */
  bool in_packet;      /**< after FF FD */
  bool escaped;        /**< after FF, whose meaning depends on the next byte */
  uint32_t crc_errors; /**< packets with a wrong CRC */
  uint32_t dropped;    /**< packets that were too long or broken off */
} utvm_deframer_t;

/** Initialise a receiver. */
void utvm_deframer_init(utvm_deframer_t *deframer, uint8_t *payload, uint32_t limit);

/**
 * Take a byte from the wire.
 *
 * @return true if it completed a packet: the payload is valid until the next byte is taken
 */
bool utvm_deframer_take(utvm_deframer_t *deframer, uint8_t byte);

/** Send FE, which ends an escape that a reset may have cut off. */
void utvm_frame_after_reset(void);

/**
 * Begin to send a packet.
 *
 * @return the CRC so far, for the calls that follow
 */
uint16_t utvm_frame_begin(uint32_t payload_bytes);

/** Send some of the payload; returns the CRC so far. */
uint16_t utvm_frame_add(uint16_t crc, const uint8_t *bytes, uint32_t count);

/** End the packet, after all announced bytes were added. */
void utvm_frame_end(uint16_t crc);

#endif
