/* The graph executor; see the header for the description that it reads. */
#include "graph_executor.h"

#include <string.h>

#ifdef UTVM_STEPS
/* A hook that is called before each step: define UTVM_STEP(number) to follow a run. */
#include "utvm_step.h"
#else
#define UTVM_STEP(number)
#endif

#define HEADER_BYTES 8u
#define TENSOR_BYTES 12u
#define STEP_BYTES 4u
#define NUMBER_BYTES 2u

/* One run. */
typedef struct {
  const utvm_graph_t *graph;
  const void *const *inputs;
  void *const *outputs;
  uint8_t *const *regions;
  uint32_t tensor_count;
} run_t;

/* A tensor of the description, after its checks. */
typedef struct {
  const uint8_t *address;
  uint8_t *target; /* The same address, or NULL if it must not be written. */
  uint32_t bytes;
} tensor_t;

static uint32_t read_16(const uint8_t *bytes) {
  return (uint32_t)bytes[0] | ((uint32_t)bytes[1] << 8);
}

static uint32_t read_32(const uint8_t *bytes) {
  return read_16(bytes) | (read_16(&bytes[2]) << 16);
}

/* Find the memory that holds a tensor: its address, whether it may be written, and its size. */
static int32_t find_holder(const run_t *run, uint32_t kind, uint32_t number, tensor_t *holder) {
  const utvm_graph_t *graph = run->graph;
  int32_t status = UTVM_GRAPH_OK;
  holder->target = NULL;
  if ((kind == UTVM_GRAPH_INPUT) && (number < graph->input_count)) {
    holder->address = (const uint8_t *)run->inputs[number];
    holder->bytes = graph->input_bytes[number];
  } else if ((kind == UTVM_GRAPH_OUTPUT) && (number < graph->output_count)) {
    holder->target = (uint8_t *)run->outputs[number];
    holder->address = holder->target;
    holder->bytes = graph->output_bytes[number];
  } else if ((kind == UTVM_GRAPH_CONSTANT) && (number < graph->constant_count)) {
    holder->address = (const uint8_t *)graph->constants[number].data;
    holder->bytes = graph->constants[number].bytes;
  } else if ((kind == UTVM_GRAPH_REGION) && (number < graph->region_count)) {
    holder->target = run->regions[number];
    holder->address = holder->target;
    holder->bytes = graph->region_bytes[number];
  } else {
    status = UTVM_GRAPH_BAD_TENSOR;
  }
  return status;
}

static int32_t find_tensor(const run_t *run, uint32_t number, tensor_t *tensor) {
  int32_t status = UTVM_GRAPH_BAD_TENSOR;
  if (number < run->tensor_count) {
    const uint8_t *entry = &run->graph->description[HEADER_BYTES + (number * TENSOR_BYTES)];
    const uint32_t offset = read_32(&entry[4]);
    const uint32_t bytes = read_32(&entry[8]);
    status = find_holder(run, read_16(entry), read_16(&entry[2]), tensor);
    if (status == UTVM_GRAPH_OK) {
      if ((offset > tensor->bytes) || (bytes > (tensor->bytes - offset))) {
        status = UTVM_GRAPH_BAD_TENSOR;
      } else if (offset > 0u) {
        tensor->address = &tensor->address[offset];
        tensor->target = (tensor->target == NULL) ? NULL : &tensor->target[offset];
      } else {
        /* It begins at the start of its holder. */
      }
      tensor->bytes = bytes;
    }
  }
  return status;
}

static int32_t run_copy(const run_t *run, const uint8_t *numbers, uint32_t count) {
  tensor_t source;
  tensor_t target;
  int32_t status = UTVM_GRAPH_BAD_OPERATOR;
  if (count == 2u) {
    status = find_tensor(run, read_16(numbers), &source);
    if (status == UTVM_GRAPH_OK) {
      status = find_tensor(run, read_16(&numbers[NUMBER_BYTES]), &target);
    }
    if (status == UTVM_GRAPH_OK) {
      if ((target.target == NULL) || (source.bytes != target.bytes)) {
        status = UTVM_GRAPH_BAD_ARGUMENT;
      } else {
        (void)memmove(target.target, source.address, source.bytes);
      }
    }
  }
  return status;
}

static int32_t run_operator(const run_t *run, const utvm_graph_operator_t *called, const uint8_t *numbers,
                            void **scratch) {
  int32_t status = UTVM_GRAPH_OK;
  for (uint32_t index = 0u; (index < called->argument_count) && (status == UTVM_GRAPH_OK); index++) {
    const utvm_graph_argument_t *argument = &called->arguments[index];
    tensor_t tensor;
    status = find_tensor(run, read_16(&numbers[index * NUMBER_BYTES]), &tensor);
    if (status == UTVM_GRAPH_OK) {
      const uintptr_t rest = (uintptr_t)tensor.address & ((uintptr_t)argument->alignment - 1u);
      if ((tensor.bytes < argument->bytes) || (rest != 0u) ||
          ((argument->written != 0u) && (tensor.target == NULL))) {
        status = UTVM_GRAPH_BAD_ARGUMENT;
      } else {
        /* Wrappers give the pointers that operators only read their const back. */
        scratch[index] = (void *)(uintptr_t)tensor.address;
      }
    }
  }
  if (status == UTVM_GRAPH_OK) {
    status = called->function(scratch);
  }
  return status;
}

/* Run the step at a position of the description, and advance the position. */
static int32_t run_step(const run_t *run, uint32_t *position, void **scratch) {
  const utvm_graph_t *graph = run->graph;
  const uint32_t left = graph->description_bytes - *position;
  int32_t status = UTVM_GRAPH_BAD_LENGTH;
  if (left >= STEP_BYTES) {
    const uint8_t *step = &graph->description[*position];
    const uint32_t number = read_16(step);
    const uint32_t count = read_16(&step[2]);
    const uint32_t bytes = STEP_BYTES + (count * NUMBER_BYTES);
    if (left >= bytes) {
      *position += bytes;
      if (number == UTVM_GRAPH_COPY) {
        status = run_copy(run, &step[STEP_BYTES], count);
      } else if ((number < graph->operator_count) && (count == graph->operators[number].argument_count) &&
                 (count <= graph->argument_limit)) {
        status = run_operator(run, &graph->operators[number], &step[STEP_BYTES], scratch);
      } else {
        status = UTVM_GRAPH_BAD_OPERATOR;
      }
    }
  }
  return status;
}

int32_t utvm_graph_run(const utvm_graph_t *graph, const void *const *inputs, void *const *outputs,
                       uint8_t *const *regions, void **scratch) {
  static const uint8_t magic[4] = {0x55u, 0x47u, 0x52u, 0x31u};
  int32_t status = UTVM_GRAPH_BAD_HEADER;
  if ((graph->description_bytes >= HEADER_BYTES) && (memcmp(graph->description, magic, sizeof magic) == 0)) {
    const uint32_t steps = read_16(&graph->description[6]);
    run_t run;
    run.graph = graph;
    run.inputs = inputs;
    run.outputs = outputs;
    run.regions = regions;
    run.tensor_count = read_16(&graph->description[4]);
    uint32_t position = HEADER_BYTES + (run.tensor_count * TENSOR_BYTES);
    status = UTVM_GRAPH_OK;
    if (position > graph->description_bytes) {
      status = UTVM_GRAPH_BAD_LENGTH;
    }
    for (uint32_t step = 0u; (step < steps) && (status == UTVM_GRAPH_OK); step++) {
      UTVM_STEP(step)
      status = run_step(&run, &position, scratch);
    }
    if ((status == UTVM_GRAPH_OK) && (position != graph->description_bytes)) {
      status = UTVM_GRAPH_BAD_LENGTH;
    }
  }
  return status;
}
