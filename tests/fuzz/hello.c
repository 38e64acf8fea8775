/* SPDX-License-Identifier: Apache-2.0 */
/* A hello that decodes must encode to the same bytes again; a welcome must be printable. */
#include "coll/hello.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint8_t again[RB_HELLO_MAX];
    struct rb_welcome welcome;
    struct rb_hello hello;

    if (rb_hello_decode(bytes, size, &hello, NULL) == 0)
        if (rb_hello_encode(&hello, again) != size || memcmp(again, bytes, size))
            abort();
    if (size >= RB_WELCOME_SIZE && rb_welcome_decode(bytes, &welcome) == 0)
        if (welcome.err > 0 || !memchr(welcome.text, 0, sizeof welcome.text))
            abort();
    return 0;
}
