/* SPDX-License-Identifier: Apache-2.0 */
/* A safetensors file, and every byte that it claims for its tensors. */
#include "proto/safetensors.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rb_safetensor_note *notes = NULL;
    struct rb_safetensor *tensors = NULL;
    struct rb_why why = {0};
    struct rb_buffer out = {0};
    uint8_t sum = 0;
    int n = 0, n_notes = 0;

    if (rb_safetensors_notes(data, size, &notes, &n_notes, &why) == 0)
        for (int i = 0; i < n_notes; i++)
            sum += (uint8_t)(strlen(notes[i].key) + strlen(notes[i].text));
    free(notes);
    if (rb_safetensors_read(data, size, &tensors, &n, &why))
        return 0;
    for (int i = 0; i < n; i++) {
        size_t bytes =
            (size_t)rb_tensor_elements(&tensors[i].type) * rb_dtype_size(tensors[i].type.dtype);

        for (size_t j = 0; j < bytes; j++) /* a sanitizer watches */
            sum += ((const uint8_t *)tensors[i].data)[j];
    }
    rb_safetensors_header(tensors, n, &out);
    rb_buffer_done(&out);
    free(tensors);
    __asm__ volatile("" : : "r"(sum)); /* otherwise the reads would be dropped */
    return 0;
}
