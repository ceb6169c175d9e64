/**
 * The graph executor: runs a model by reading a description of its graph.
 *
 * C99, no malloc, no state of its own. It checks everything that it reads: a damaged description gives a negative
 * code, never an access outside of the memory that the caller hands over. Operators before the damage have already run.
 *
 * The description, version 1. All numbers are unsigned and little-endian.
 *
 *   header    4 bytes  'U' 'G' 'R' '1'
 *             uint16   number of tensors
 *             uint16   number of steps
 *   tensors   uint16   kind of its holder, a UTVM_GRAPH_ code
 *             uint16   which one of those: number of the input, output, constant or region
 *             uint32   offset in it, in bytes
 *             uint32   size in bytes
 *   steps     uint16   number of the operator, or UTVM_GRAPH_COPY
 *             uint16   number of its arguments
 *             uint16   for each argument, the number of a tensor
 *
 * An operator's arguments are its inputs, its outputs, and its workspace if it has one. A copy has two, of the
 * same size: source and target.
 */
#ifndef UTVM_GRAPH_EXECUTOR_H
#define UTVM_GRAPH_EXECUTOR_H

#include <stdint.h>

/** Kinds of memory that hold a tensor. */
#define UTVM_GRAPH_INPUT 0u
#define UTVM_GRAPH_OUTPUT 1u
#define UTVM_GRAPH_CONSTANT 2u
#define UTVM_GRAPH_REGION 3u

/** In place of an operator's number: copy the first argument to the second. */
#define UTVM_GRAPH_COPY 0xFFFFu

/** Return values of utvm_graph_run(). */
#define UTVM_GRAPH_OK 0
#define UTVM_GRAPH_BAD_HEADER (-1)   /**< not a description of this version */
#define UTVM_GRAPH_BAD_LENGTH (-2)   /**< it is too short or too long */
#define UTVM_GRAPH_BAD_TENSOR (-3)   /**< a tensor is outside of its holder, or the holder does not exist */
#define UTVM_GRAPH_BAD_OPERATOR (-4) /**< a step has an unknown operator, or a wrong number of arguments */
#define UTVM_GRAPH_BAD_ARGUMENT (-5) /**< an argument is too small, misaligned, or must not be written */

/**
 * An operator behind one signature.
 *
 * @param tensors one pointer for each argument
 * @return 0, or the operator's own error code, which ends the run
 */
typedef int32_t (*utvm_graph_function_t)(void *const *tensors);

/** Requirements on a tensor that is an argument of an operator. */
typedef struct {
  uint32_t bytes;     /**< minimum size */
  uint16_t alignment; /**< its address is a multiple of this, a power of two */
  uint16_t written;   /**< 1 if the operator writes it */
} utvm_graph_argument_t;

/** One operator. */
typedef struct {
  utvm_graph_function_t function;
  const utvm_graph_argument_t *arguments;
  uint32_t argument_count;
} utvm_graph_operator_t;

/** A constant, or sizes of an input, output or region. */
typedef struct {
  const void *data;
  uint32_t bytes;
} utvm_graph_constant_t;

/** A model: its description, and the objects that the description refers to by number. */
typedef struct {
  const uint8_t *description;
  uint32_t description_bytes;
  const utvm_graph_operator_t *operators;
  uint32_t operator_count;
  const utvm_graph_constant_t *constants;
  uint32_t constant_count;
  const uint32_t *input_bytes;
  uint32_t input_count;
  const uint32_t *output_bytes;
  uint32_t output_count;
  const uint32_t *region_bytes;
  uint32_t region_count;
  uint32_t argument_limit; /**< the largest number of arguments of an operator, at least 2 */
} utvm_graph_t;

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Run a model once.
 *
 * @param graph    the model
 * @param inputs   one pointer for each input, of graph->input_bytes each
 * @param outputs  one pointer for each output, of graph->output_bytes each
 * @param regions  one pointer for each region of working memory, of graph->region_bytes each
 * @param scratch  room for graph->argument_limit pointers
 * @return UTVM_GRAPH_OK, a UTVM_GRAPH_BAD_ code, or the code of an operator
 */
int32_t utvm_graph_run(const utvm_graph_t *graph, const void *const *inputs, void *const *outputs,
                       uint8_t *const *regions, void **scratch);

#ifdef __cplusplus
}
#endif

#endif
