/* SPDX-License-Identifier: Apache-2.0 */
/* The two ends of a stream of tls:, in one process and without a socket: what one end has to send
 * is given to the other in pieces of any size, or changed. */
#include "daemon/rpc/stream_tls.h"

#include "base/arena.h"
#include "base/file.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[] = "/tmp/rubato-tls.XXXXXX";

struct ends {
    struct rb_tls *node, *user;
    struct rb_stream_tls *called, *caller;
    struct rb_buffer at_node, at_user; /* what came */
    struct rb_why why;
};

/* deploy/certificates, which users have, too. */
static void certify(const char *authority, const char *name, const char *address)
{
    RB_CLEANUP(rb_freep)
    char *command = rb_format("%s %s/%s %s %s >/dev/null", getenv("RUBATO_CERTIFICATES"), folder,
                              authority, name, address);

    assert_int_equal(system(command), 0);
}

static struct rb_tls *load(const char *authority, const char *name)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s/%s", folder, authority, name);
    struct rb_tls *tls = NULL;
    struct rb_why why;

    if (rb_tls_new(path, &tls, &why))
        fail_msg("%s", why.text);
    return tls;
}

static struct ends ends_new(const char *authority, const char *user, const char *host)
{
    struct ends ends = {.node = load("ca", "node"), .user = load(authority, user)};

    assert_int_equal(rb_stream_tls_new(ends.node, NULL, &ends.called, &ends.why), 0);
    assert_int_equal(rb_stream_tls_new(ends.user, host, &ends.caller, &ends.why), 0);
    return ends;
}

static void ends_done(struct ends *ends)
{
    rb_stream_tls_free(ends->called);
    rb_stream_tls_free(ends->caller);
    rb_tls_free(ends->node);
    rb_tls_free(ends->user);
    rb_buffer_done(&ends->at_node);
    rb_buffer_done(&ends->at_user);
}

/* Carry some of what one end has to send. */
static bool carry(struct rb_stream_tls *from, struct rb_stream_tls *to, size_t most)
{
    const size_t n = from->goes.size < most ? from->goes.size : most;

    rb_buffer_add(&to->came, from->goes.data, n);
    rb_buffer_drop(&from->goes, n);
    return n > 0;
}

/* To and fro until neither end has anything to send; ret_err: of each side. */
static void talk(struct ends *ends, size_t most, int *ret_called, int *ret_caller)
{
    *ret_called = 0;
    *ret_caller = rb_stream_tls_move(ends->caller, &ends->at_user, &ends->why);
    for (bool moved = true; moved;) {
        struct rb_why why;

        moved = carry(ends->caller, ends->called, most);
        if (moved && !*ret_called)
            *ret_called = rb_stream_tls_move(ends->called, &ends->at_node, &why);
        if (carry(ends->called, ends->caller, most)) {
            moved = true;
            if (!*ret_caller)
                *ret_caller = rb_stream_tls_move(ends->caller, &ends->at_user, &ends->why);
        }
    }
}

static void bytes_arrive(void **state)
{
    static const size_t pieces[] = {1, 7, 100, 5000, 1 << 20};
    enum { SIZE = 100000 };
    char *sent = rb_alloc(SIZE);

    (void)state;
    for (int i = 0; i < SIZE; i++)
        sent[i] = (char)(i * 7 + i / 256);
    for (size_t i = 0; i < RB_COUNT(pieces); i++) {
        struct ends ends = ends_new("ca", "user", "localhost");
        int called, caller;

        talk(&ends, pieces[i], &called, &caller);
        assert_true(!called && !caller && ends.called->stands && ends.caller->stands);
        assert_int_equal(rb_stream_tls_seal(ends.caller, sent, SIZE, &ends.why), 0);
        assert_int_equal(rb_stream_tls_seal(ends.called, sent, SIZE / 3, &ends.why), 0);
        talk(&ends, pieces[i], &called, &caller);
        assert_true(!called && !caller);
        assert_int_equal(ends.at_node.size, SIZE);
        assert_memory_equal(ends.at_node.data, sent, SIZE);
        assert_int_equal(ends.at_user.size, SIZE / 3);
        assert_memory_equal(ends.at_user.data, sent, SIZE / 3);
        ends_done(&ends);
    }
    free(sent);
}

/* Nothing of what was said arrives: neither end says anything before both know each other. */
static void wrong_certificates(void **state)
{
    static const struct {
        const char *authority, *user, *host;
        bool caller_finds; /* else the caller is told */
        const char *words;
    } cases[] = {
        {"ca", "user", "elsewhere", true, "The name in the certificate does not match"},
        {"other", "user", "localhost", true, "The certificate issuer is unknown"},
        {"both", "user", "localhost", false, "does not take our certificate"},
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct ends ends = ends_new(cases[i].authority, cases[i].user, cases[i].host);
        int called, caller;

        talk(&ends, 1 << 20, &called, &caller);
        assert_int_equal(caller, RB_EREFUSED);
        assert_int_equal(called, RB_EREFUSED);
        assert_false(ends.called->stands);
        assert_int_equal(ends.caller->stands, !cases[i].caller_finds);
        assert_non_null(strstr(ends.why.text, cases[i].words));
        ends_done(&ends);
    }
}

/* One bit is changed, anywhere: nothing is taken from there on. */
static void bytes_are_changed(void **state)
{
    (void)state;
    for (size_t at = 0; at < 60; at += 3) {
        struct ends ends = ends_new("ca", "user", "localhost");
        int called, caller;

        talk(&ends, 1 << 20, &called, &caller);
        assert_int_equal(rb_stream_tls_seal(ends.caller, "what is said in confidence", 26, NULL),
                         0);
        ends.caller->goes.data[at % ends.caller->goes.size] ^= 4;
        talk(&ends, 1 << 20, &called, &caller);
        assert_int_equal(ends.at_node.size, 0);
        assert_true(called == RB_EREFUSED || ends.called->came.size < 48);
        ends_done(&ends);
    }
}

static void not_tls_at_all(void **state)
{
    static const char said[][14] = {"GET / HTTP/1.1", "\x16\x03\x01\xff\xff", "RB\1"};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(said); i++) {
        struct ends ends = ends_new("ca", "user", "localhost");

        rb_buffer_add(&ends.called->came, said[i], sizeof said[i]);
        assert_true(rb_stream_tls_move(ends.called, &ends.at_node, &ends.why) < 0);
        assert_false(ends.called->stands);
        assert_int_equal(ends.at_node.size, 0);
        ends_done(&ends);
    }
}

static ssize_t pull(gnutls_transport_ptr_t caller, void *to, size_t room)
{
    struct rb_stream_tls *other = caller;
    const size_t n = other->goes.size < room ? other->goes.size : room;

    if (!n) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(to, other->goes.data, n);
    rb_buffer_drop(&other->goes, n);
    return (ssize_t)n;
}

static ssize_t push(gnutls_transport_ptr_t caller, const void *bytes, size_t size)
{
    rb_buffer_add(&((struct rb_stream_tls *)caller)->came, bytes, size);
    return (ssize_t)size;
}

/* Bytes that have come with a word that new keys count from here on (as after some 2^24 records)
 * are taken at once: nothing else may come that would wake the reader. */
static void keys_change_on_the_way(void **state)
{
    struct ends ends = ends_new("ca", "user", "localhost");
    RB_CLEANUP(rb_freep) char *certificate = rb_format("%s/ca/user/tls.crt", folder);
    RB_CLEANUP(rb_freep) char *key = rb_format("%s/ca/user/tls.key", folder);
    gnutls_certificate_credentials_t credentials;
    gnutls_session_t caller;

    (void)state;
    gnutls_certificate_allocate_credentials(&credentials);
    gnutls_certificate_set_x509_key_file(credentials, certificate, key, GNUTLS_X509_FMT_PEM);
    gnutls_init(&caller, GNUTLS_CLIENT | GNUTLS_NONBLOCK);
    gnutls_set_default_priority(caller);
    gnutls_credentials_set(caller, GNUTLS_CRD_CERTIFICATE, credentials);
    gnutls_transport_set_ptr(caller, ends.called);
    gnutls_transport_set_pull_function(caller, pull);
    gnutls_transport_set_push_function(caller, push);
    while (gnutls_handshake(caller) == GNUTLS_E_AGAIN)
        assert_int_equal(rb_stream_tls_move(ends.called, &ends.at_node, &ends.why), 0);
    assert_int_equal(rb_stream_tls_move(ends.called, &ends.at_node, &ends.why), 0);
    assert_true(ends.called->stands);
    for (size_t i = 1; i <= 3; i++) {
        assert_int_equal(gnutls_session_key_update(caller, i % 2 ? GNUTLS_KU_PEER : 0), 0);
        assert_int_equal(gnutls_record_send(caller, "call", 4), 4);
        assert_int_equal(rb_stream_tls_move(ends.called, &ends.at_node, &ends.why), 0);
        assert_int_equal(ends.at_node.size, 4 * i);
    }
    gnutls_deinit(caller);
    gnutls_certificate_free_credentials(credentials);
    ends_done(&ends);
}

static void own_certificate(void **state)
{
    struct rb_tls *node = load("ca", "node"), *user = load("ca", "user"), *none = NULL;
    struct rb_why why;

    (void)state;
    assert_int_equal(rb_tls_serves(node, "localhost", &why), 0);
    assert_int_equal(rb_tls_serves(node, "10.0.0.7", &why), RB_EINVAL);
    assert_int_equal(rb_tls_serves(user, "localhost", &why), RB_EINVAL);
    assert_int_equal(rb_tls_new("/nowhere", &none, &why), RB_ENOTFOUND);
    assert_string_equal(why.text, "/nowhere/ca.crt: No such file or directory");
    rb_tls_free(node);
    rb_tls_free(user);
}

/* A user whom the node does not know, and who trusts the node. */
static int set_up(void **state)
{
    RB_CLEANUP(rb_freep) char *copy = NULL;

    (void)state;
    assert_non_null(mkdtemp(folder));
    certify("ca", "node", "localhost");
    certify("ca", "user", "");
    certify("other", "user", "");
    copy = rb_format("cd %s && cp -r other both && cp ca/ca.crt both/user/", folder);
    return system(copy);
}

static int clean_up(void **state)
{
    (void)state;
    return rb_file_remove(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive),           cmocka_unit_test(wrong_certificates),
        cmocka_unit_test(bytes_are_changed),      cmocka_unit_test(not_tls_at_all),
        cmocka_unit_test(keys_change_on_the_way), cmocka_unit_test(own_certificate),
    };

    return cmocka_run_group_tests(tests, set_up, clean_up);
}
