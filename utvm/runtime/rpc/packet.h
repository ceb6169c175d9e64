/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Reading and writing of RPC packets: TVM's MinRPC protocol 0.8.0 (rpc_reference.h in TVM's sources), without the
 * 64-bit length in front. All numbers are little-endian.
 */
#ifndef UTVM_PACKET_H
#define UTVM_PACKET_H

#include <stdbool.h>
#include <stdint.h>

/* The build defines UTVM_RPC_PROTOCOL, the version that client and board compare when a session begins. */

/** Kinds of packets. */
#define UTVM_RPC_SHUTDOWN 1
#define UTVM_RPC_INIT_SERVER 2
#define UTVM_RPC_CALL 3
#define UTVM_RPC_RETURN 4
#define UTVM_RPC_EXCEPTION 5
#define UTVM_RPC_COPY_FROM 6
#define UTVM_RPC_COPY_TO 7
#define UTVM_RPC_COPY_ACK 8
#define UTVM_RPC_GET_FUNCTION 9
#define UTVM_RPC_FREE_HANDLE 10
#define UTVM_RPC_SET_DEVICE 11
#define UTVM_RPC_GET_ATTRIBUTE 12
#define UTVM_RPC_ALLOCATE 13
#define UTVM_RPC_FREE 14
#define UTVM_RPC_SYNCHRONISE 15
#define UTVM_RPC_COPY_AMONG 16
#define UTVM_RPC_ALLOCATE_TENSOR 17

/** Types of values (tvm/ffi/c_api.h). */
#define UTVM_TYPE_NONE 0
#define UTVM_TYPE_INTEGER 1
#define UTVM_TYPE_BOOL 2
#define UTVM_TYPE_FLOAT 3
#define UTVM_TYPE_HANDLE 4
#define UTVM_TYPE_DATA_TYPE 5
#define UTVM_TYPE_DEVICE 6
#define UTVM_TYPE_TENSOR 7
#define UTVM_TYPE_RAW_TEXT 8
#define UTVM_TYPE_RAW_BYTES 9
#define UTVM_TYPE_SMALL_TEXT 11
#define UTVM_TYPE_SMALL_BYTES 12
#define UTVM_TYPE_TEXT 65
#define UTVM_TYPE_BYTES 66
#define UTVM_TYPE_FUNCTION 68
#define UTVM_TYPE_MODULE 73

/** Most dimensions of a tensor, and most arguments of a call. */
#define UTVM_DIMENSIONS 8
#define UTVM_ARGUMENTS 16

/** A tensor in the board's memory, as a client describes it (DLTensor). */
typedef struct {
  uint64_t address; /**< of its first element, including the byte offset */
  uint64_t bytes;   /**< of all elements */
  uint8_t code;     /**< kind of element (DLDataTypeCode) */
  uint8_t bits;     /**< of an element */
  uint16_t lanes;
  int32_t dimensions;
  int64_t shape[UTVM_DIMENSIONS];
} utvm_tensor_t;

/** An argument. */
typedef struct {
  int32_t type;         /**< UTVM_TYPE_... */
  uint64_t number;      /**< integer (two's complement), float (its bits) or handle */
  const uint8_t *bytes; /**< text (no zero at its end) or bytes */
  uint32_t length;      /**< of text or bytes */
  utvm_tensor_t tensor;
} utvm_value_t;

/** The unread rest of a packet. */
typedef struct {
  const uint8_t *bytes;
  uint32_t left;
  bool failed; /**< a read went past the end and returned zero */
} utvm_reader_t;

/** A packet being written. */
typedef struct {
  uint8_t *bytes;
  uint32_t used;
  uint32_t limit;
  bool failed; /**< it did not fit */
} utvm_writer_t;

/** Read a number of 1 to 8 bytes. */
uint64_t utvm_read(utvm_reader_t *reader, uint32_t bytes);

/** Read some bytes without copying them; NULL if there are fewer. */
const uint8_t *utvm_read_bytes(utvm_reader_t *reader, uint64_t count);

/** Read a tensor's description. */
void utvm_read_tensor(utvm_reader_t *reader, utvm_tensor_t *tensor);

/**
 * Read a sequence of arguments.
 *
 * @param values  UTVM_ARGUMENTS of them
 * @return their number; the reader has failed if there are too many, or one has an unknown type
 */
uint32_t utvm_read_values(utvm_reader_t *reader, utvm_value_t *values);

/** Split a number into 1 to 8 bytes, the lowest first. */
void utvm_split(uint8_t *bytes, uint64_t number, uint32_t count);

/** Write a number of 1 to 8 bytes. */
void utvm_write(utvm_writer_t *writer, uint64_t number, uint32_t bytes);

/** Write some bytes. */
void utvm_write_bytes(utvm_writer_t *writer, const uint8_t *bytes, uint32_t count);

/** Write the whole reply to a request of the session itself: one value, a number or nothing. */
void utvm_write_answer(utvm_writer_t *writer, int32_t type, uint64_t number);

/** Write the whole answer to a call: a value that is a number, a handle or nothing. */
void utvm_write_result(utvm_writer_t *writer, int32_t type, uint64_t number);

/** Write the whole answer to a call: UTVM_TYPE_TEXT or UTVM_TYPE_BYTES. */
void utvm_write_result_bytes(utvm_writer_t *writer, int32_t type, const uint8_t *bytes, uint32_t count);

/** Write an exception in place of what has been written. */
void utvm_write_exception(utvm_writer_t *writer, const uint8_t *text, uint32_t count);

#endif
