/* aot_custom.h - what a bundle tells the firmware's function that computes a custom operator.
 *
 * `aot bundle model.tflite --custom CODE=function` calls, for each node whose custom code is CODE,
 *     int function(const aot_custom_call *call);
 * which the firmware defines. It reads call->inputs, writes every byte of call->outputs and returns 0. If it returns anything else,
 * the run ends at once and returns NAME_ERROR_CUSTOM (-3). The structs live until it returns; what `data` points to is the run's.
 * The same file comes with every bundle: C99 and C++, little-endian.
 */
#ifndef AOT_CUSTOM_STRUCTS
#define AOT_CUSTOM_STRUCTS

#include <stdint.h>

/* Types of elements: the numbers of TensorType in TFLite's schema. */
#define AOT_FLOAT32 (0)
#define AOT_FLOAT16 (1)
#define AOT_INT32 (2)
#define AOT_UINT8 (3)
#define AOT_INT64 (4)
#define AOT_BOOL (6) /* a byte, 0 or 1 */
#define AOT_INT16 (7)
#define AOT_INT8 (9)
#define AOT_FLOAT64 (10)
#define AOT_UINT64 (12)
#define AOT_UINT32 (15)
#define AOT_UINT16 (16)

typedef struct aot_custom_tensor {
    void *data;          /* elements in row-major order; those of an input must not be written; null: an absent optional input */
    const int32_t *dims; /* `rank` sizes; null for a scalar */
    uint32_t nbytes;     /* of data */
    int32_t rank;        /* 0: a scalar */
    int32_t type;        /* AOT_... above */
    float scale;         /* real = scale * (q - zero_point); 0: not quantised */
    int32_t zero_point;
} aot_custom_tensor;

typedef struct aot_custom_call {
    const aot_custom_tensor *inputs;  /* in the model's order */
    const aot_custom_tensor *outputs; /* likewise */
    const uint8_t *options;           /* the node's custom_options as in the model file, aligned to 8 bytes; null: none */
    uint32_t input_count;
    uint32_t output_count;
    uint32_t options_nbytes;
} aot_custom_call;

#endif /* AOT_CUSTOM_STRUCTS */
