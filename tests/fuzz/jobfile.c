/* SPDX-License-Identifier: Apache-2.0 */
/* The job file from YAML, and its message through JSON and back. */
#include "proto/reflect.h"
#include "proto/spec.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Rb__JobFile *job = NULL;
    ProtobufCMessage *message = NULL;
    struct rb_why why = {0};
    size_t line, column;
    char *text;

    rb_reflect_locate((const char *)data, size, "spec.train.steps", &line, &column);
    if (!rb_reflect_from_text((const char *)data, size, &rb__job_file__descriptor, &message, &why))
        protobuf_c_message_free_unpacked(message, NULL);
    if (rb_spec_parse("job.yaml", "/", (const char *)data, size, NULL, 0, &job, &why))
        return 0;
    text = rb_reflect_to_text(&job->base);
    if (rb_reflect_from_text(text, strlen(text), &rb__job_file__descriptor, &message, &why))
        abort(); /* its own output must be readable */
    protobuf_c_message_free_unpacked(message, NULL);
    rb__job_file__free_unpacked(job, NULL);
    free(text);
    return 0;
}
