/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of certificates that are not what they should be: each is refused, with the reason.  They
 * are signed here, because deploy/certificates makes none that would be refused. */
#include "proto/tls.h"

#include "base/arena.h"
#include "base/file.h"

#include <gnutls/x509.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { DAY = 24 * 3600, NOBODY = 65534 };

static char folder[] = "/tmp/rubato-tls.XXXXXX";

/* A certificate and its key. */
struct identity {
    gnutls_x509_crt_t certificate;
    gnutls_x509_privkey_t key;
};

struct wish {
    const char *name;
    const struct identity *by; /* NULL: itself, an authority */
    bool authority;
    int from, until; /* days from now */
    const char *purposes[2];
};

static struct identity sign(const struct wish *wish)
{
    static unsigned char serial;
    struct identity made;

    serial++;
    gnutls_x509_privkey_init(&made.key);
    gnutls_x509_privkey_generate(made.key, GNUTLS_PK_ECDSA,
                                 GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
    gnutls_x509_crt_init(&made.certificate);
    gnutls_x509_crt_set_version(made.certificate, 3);
    gnutls_x509_crt_set_serial(made.certificate, &serial, 1);
    gnutls_x509_crt_set_dn_by_oid(made.certificate, GNUTLS_OID_X520_COMMON_NAME, 0, wish->name,
                                  (unsigned)strlen(wish->name));
    gnutls_x509_crt_set_activation_time(made.certificate, time(NULL) + wish->from * DAY);
    gnutls_x509_crt_set_expiration_time(made.certificate, time(NULL) + wish->until * DAY);
    gnutls_x509_crt_set_key(made.certificate, made.key);
    gnutls_x509_crt_set_basic_constraints(made.certificate, wish->authority, -1);
    gnutls_x509_crt_set_key_usage(made.certificate, wish->authority ? GNUTLS_KEY_KEY_CERT_SIGN
                                                                    : GNUTLS_KEY_DIGITAL_SIGNATURE);
    for (size_t i = 0; i < RB_COUNT(wish->purposes) && wish->purposes[i]; i++)
        gnutls_x509_crt_set_key_purpose_oid(made.certificate, wish->purposes[i], 0);
    gnutls_x509_crt_set_subject_alt_name(made.certificate, GNUTLS_SAN_DNSNAME, "localhost", 9, 0);
    assert_int_equal(
        gnutls_x509_crt_sign2(made.certificate, wish->by ? wish->by->certificate : made.certificate,
                              wish->by ? wish->by->key : made.key, GNUTLS_DIG_SHA256, 0),
        0);
    return made;
}

static void forget(struct identity *who)
{
    gnutls_x509_crt_deinit(who->certificate);
    gnutls_x509_privkey_deinit(who->key);
}

static void add(const char *name, const char *file, gnutls_datum_t text)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s/%s", folder, name, file);
    FILE *to = fopen(path, "a");

    assert_non_null(to);
    fwrite(text.data, 1, text.size, to);
    fclose(to);
    gnutls_free(text.data);
}

static void add_certificate(const char *name, const char *file, const struct identity *who)
{
    gnutls_datum_t text;

    gnutls_x509_crt_export2(who->certificate, GNUTLS_X509_FMT_PEM, &text);
    add(name, file, text);
}

/* Write folder/name: the certificate of `who`, and its key, encrypted with a password. */
static void store(const char *name, const struct identity *who, const struct identity *authority,
                  const char *password)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    gnutls_datum_t text;

    assert_int_equal(mkdir(path, 0755), 0);
    add_certificate(name, "ca.crt", authority);
    add_certificate(name, "tls.crt", who);
    gnutls_x509_privkey_export2_pkcs8(who->key, GNUTLS_X509_FMT_PEM, password,
                                      password ? GNUTLS_PKCS_PBES2_AES_256 : GNUTLS_PKCS_PLAIN,
                                      &text);
    add(name, "tls.key", text);
}

/* The result of rb_tls_new and rb_tls_serves. */
static int use(const char *name, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    struct rb_tls *tls = NULL;
    int err = rb_tls_new(path, &tls, why);

    err = err ? err : rb_tls_serves(tls, "localhost", why);
    rb_tls_free(tls);
    return err;
}

static const struct wish root = {.name = "root", .authority = true, .from = -2, .until = 9};

static void what_others_would_refuse(void **state)
{
    static const struct {
        struct wish wish;
        const char *words; /* NULL: it is accepted */
    } cases[] = {
        {{.name = "good", .from = -1, .until = 1}, NULL},
        {{.name = "past", .from = -2, .until = -1}, "past/tls.crt has expired"},
        {{.name = "future", .from = 1, .until = 2}, "future/tls.crt is not valid yet"},
        {{.name = "server", .from = -1, .until = 1, .purposes = {GNUTLS_KP_TLS_WWW_SERVER}},
         "may be called, and not call"},
        {{.name = "client", .from = -1, .until = 1, .purposes = {GNUTLS_KP_TLS_WWW_CLIENT}},
         "is of a user"},
    };
    struct identity authority = sign(&root);

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct wish wish = cases[i].wish;
        struct rb_why why = {0};

        wish.by = &authority;
        struct identity own = sign(&wish);
        store(wish.name, &own, &authority, NULL);
        assert_int_equal(use(wish.name, &why), cases[i].words ? RB_EINVAL : 0);
        if (cases[i].words && !strstr(why.text, cases[i].words))
            fail_msg("%s", why.text);
        forget(&own);
    }
    forget(&authority);
}

/* Chains up to a trusted authority, with all certificates between in tls.crt. */
static void chains(void **state)
{
    const struct wish middle_wish = {.name = "middle", .authority = true, .from = -1, .until = 9};
    struct identity authority = sign(&root), stranger = sign(&root), middle, own;
    struct wish wish = middle_wish;
    struct rb_why why = {0};

    (void)state;
    wish.by = &authority;
    middle = sign(&wish);
    own = sign(&(struct wish){.name = "leaf", .by = &middle, .from = -1, .until = 1});
    store("short", &own, &authority, NULL);
    assert_int_equal(use("short", &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "The certificate issuer is unknown"));
    add_certificate("short", "tls.crt", &middle);
    assert_int_equal(use("short", &why), 0);
    store("strange", &own, &stranger, NULL);
    add_certificate("strange", "tls.crt", &middle);
    assert_int_equal(use("strange", &why), RB_EINVAL);
    add_certificate("strange", "ca.crt", &authority); /* one of several */
    assert_int_equal(use("strange", &why), 0);
    forget(&own);
    forget(&middle);
    forget(&stranger);
    forget(&authority);
}

/* Root may read everything, so the test runs as nobody. */
static int use_as_nobody(const char *name, struct rb_why *why)
{
    const bool root_runs = getuid() == 0;
    int err;

    if (root_runs)
        assert_int_equal(setresuid(NOBODY, NOBODY, 0), 0);
    err = use(name, why);
    if (root_runs)
        assert_int_equal(setresuid(0, 0, 0), 0);
    return err;
}

static void files_that_cannot_be_read(void **state)
{
    RB_CLEANUP(rb_freep) char *key = rb_format("%s/closed/tls.key", folder);
    struct identity authority = sign(&root);
    struct identity own =
        sign(&(struct wish){.name = "own", .by = &authority, .from = -1, .until = 1});
    struct rb_why why = {0};

    (void)state;
    store("secret", &own, &authority, "password");
    assert_int_equal(use("secret", &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "secret/tls.key is encrypted"));
    store("closed", &own, &authority, NULL);
    assert_int_equal(chmod(key, 0), 0);
    assert_int_equal(use_as_nobody("closed", &why), RB_EREFUSED);
    assert_non_null(strstr(why.text, "closed/tls.key: Permission denied"));
    forget(&own);
    forget(&authority);
}

/* The certificate that expires first decides, even the authority's. */
static void how_long_it_is_good(void **state)
{
    static const struct {
        const char *name;
        int authority, own, least; /* days from now */
    } cases[] = {{"leaf-first", 9, 3, 3}, {"authority-first", 3, 9, 3}};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct identity authority = sign(&(struct wish){
            .name = "root", .authority = true, .from = -2, .until = cases[i].authority});
        struct identity own = sign(
            &(struct wish){.name = "own", .by = &authority, .from = -1, .until = cases[i].own});
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, cases[i].name);
        int64_t from, until, now = time(NULL);
        struct rb_tls *tls;

        store(cases[i].name, &own, &authority, NULL);
        assert_int_equal(rb_tls_new(path, &tls, NULL), 0);
        rb_tls_valid(tls, &from, &until);
        assert_true(from >= now - DAY - 60 && from <= now - DAY);
        assert_true(until >= now + cases[i].least * DAY - 60 &&
                    until <= now + cases[i].least * DAY);
        rb_tls_free(tls);
        forget(&own);
        forget(&authority);
    }
}

/* A file of another folder takes its place. */
static void move_in(const char *from, const char *file)
{
    RB_CLEANUP(rb_freep) char *source = rb_format("%s/%s/%s", folder, from, file);
    RB_CLEANUP(rb_freep) char *target = rb_format("%s/serving/%s", folder, file);

    assert_int_equal(rename(source, target), 0);
}

static void renewed_while_it_serves(void **state)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/serving", folder);
    struct identity authority = sign(&root);
    struct wish wish = {.name = "own", .by = &authority, .from = -1, .until = 2};
    struct identity own = sign(&wish), next;
    struct rb_tls *tls;
    struct rb_why why = {0};
    int64_t from, before, until;
    bool new;

    (void)state;
    store("serving", &own, &authority, NULL);
    wish.until = 4;
    next = sign(&wish);
    store("next", &next, &authority, NULL);
    assert_int_equal(rb_tls_new(path, &tls, &why), 0);
    rb_tls_valid(tls, &from, &before);
    assert_int_equal(rb_tls_renew(tls, &new, &why), 0);
    assert_false(new);
    move_in("next", "tls.crt"); /* with the key of the other */
    assert_int_equal(rb_tls_renew(tls, &new, &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "serving/tls.crt with tls.key"));
    rb_tls_valid(tls, &from, &until);
    assert_false(new);
    assert_true(until == before && !rb_tls_serves(tls, "localhost", &why));
    move_in("next", "tls.key");
    assert_int_equal(rb_tls_renew(tls, &new, &why), 0);
    rb_tls_valid(tls, &from, &until);
    assert_true(new &&until > before + DAY);
    rb_tls_free(tls);
    forget(&next);
    forget(&own);
    forget(&authority);
}

static int set_up(void **state)
{
    (void)state;
    return !mkdtemp(folder) || chmod(folder, 0755);
}

static int clean_up(void **state)
{
    (void)state;
    return rb_file_remove(folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_others_would_refuse),  cmocka_unit_test(chains),
        cmocka_unit_test(files_that_cannot_be_read), cmocka_unit_test(how_long_it_is_good),
        cmocka_unit_test(renewed_while_it_serves),
    };

    return cmocka_run_group_tests(tests, set_up, clean_up);
}
