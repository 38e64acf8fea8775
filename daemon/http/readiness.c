/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/readiness.h"

bool rb_readiness_say(const struct rb_readiness *seen, struct rb_buffer *out)
{
    size_t before = out->size;

    if (seen->leaving)
        rb_buffer_text(out, "leaving\n");
    if (!seen->synced)
        rb_buffer_text(out, "etcd has not been read yet\n");
    else if (!seen->connected)
        rb_buffer_text(out, "etcd does not answer\n");
    if (!seen->registered)
        rb_buffer_text(out, "this node is not registered in etcd\n");
    if (!seen->leader)
        rb_buffer_text(out, "no coordinator is known\n");
    if (out->size > before)
        return false;
    rb_buffer_text(out, "ok\n");
    return true;
}
