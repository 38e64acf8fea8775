/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/weights.h"

#include "base/clock.h"
#include "ctl/value.h"

#include <gnutls/crypto.h>
#include <inttypes.h>

enum { QUIET_MS = 600000, PARK_MS = 120000, RETRY_MS = 200 };

struct counted {
    rb_client_piece *piece;
    void *context;
    uint64_t bytes;
};

static int count_piece(void *context, const void *bytes, size_t size, struct rb_why *why)
{
    struct counted *counted = context;

    counted->bytes += size;
    return counted->piece(counted->context, bytes, size, why);
}

int rb_weights_fetch(const struct rb_session *session, const char *job, rb_client_piece *piece,
                     void *context, json_t **ret_reply, struct rb_why *why)
{
    json_t *body = json_pack("{s:s}", "job", job);
    struct counted counted = {piece, context, 0};
    struct rb_client_call call = {
        .to = session->to,
        .method = "export",
        .node = "leader",
        .body = body,
        .quiet_ms = QUIET_MS,
        .piece = count_piece,
        .context = &counted,
    };
    uint64_t start = rb_clock_ns();
    int err;

    do { /* RB_EAGAIN: nothing came, because the state is on its way to where it is kept */
        err = rb_client_call(&call, ret_reply, why);
    } while (err == RB_EAGAIN && rb_clock_ns() - start < (uint64_t)PARK_MS * 1000000 &&
             !(err = rb_session_sleep(session, RETRY_MS, 0, why)));
    json_decref(body);
    if (err == RB_ETIMEOUT) /* from the silence of rubatod or a node, not from a --timeout */
        err = RB_EUNREACHABLE;
    if (!err && rb_value_integer(*ret_reply, "bytes", -1) != (int64_t)counted.bytes) {
        err = rb_why_set(why, RB_EIO, "%" PRIu64 " bytes came of %" PRId64, counted.bytes,
                         rb_value_integer(*ret_reply, "bytes", 0));
        json_decref(*ret_reply);
    }
    return err;
}

static int hash_piece(void *context, const void *bytes, size_t size, struct rb_why *why)
{
    gnutls_hash_hd_t *hash = context;

    return gnutls_hash(*hash, bytes, size) ? rb_why_set(why, RB_EINTERNAL, "cannot hash") : 0;
}

int rb_weights_sha256(const struct rb_session *session, const char *job,
                      char ret_text[RB_WEIGHTS_SHA256], int64_t *ret_step, struct rb_why *why)
{
    unsigned char digest[(RB_WEIGHTS_SHA256 - 1) / 2];
    gnutls_hash_hd_t hash;
    json_t *reply = NULL;
    int err;

    if (gnutls_hash_init(&hash, GNUTLS_DIG_SHA256))
        return rb_why_set(why, RB_EINTERNAL, "GnuTLS has no SHA-256 here");
    err = rb_weights_fetch(session, job, hash_piece, &hash, &reply, why);
    gnutls_hash_deinit(hash, digest);
    if (err)
        return err;
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(ret_text + 2 * i, 3, "%02x", digest[i]);
    *ret_step = rb_value_integer(reply, "step", 0);
    json_decref(reply);
    return 0;
}
