/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a folder: read, checked as the other side will check them, and read again. */
#include "proto/tls_inside.h"

#include "base/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { AUTHORITY, CERTIFICATE, KEY, FILES };

static const char *const names[FILES] = {"ca.crt", "tls.crt", "tls.key"};

struct rb_tls {
    char *path[FILES];
    struct stat seen[FILES];
    struct rb_tls_keys *keys;
};

void rb_tls_keys_drop(struct rb_tls_keys *keys)
{
    if (!keys || --keys->users)
        return;
    gnutls_certificate_free_credentials(keys->credentials);
    free(keys);
}

static int look(const struct rb_tls *tls, struct stat ret_seen[FILES], struct rb_why *why)
{
    for (int i = 0; i < FILES; i++)
        if (stat(tls->path[i], &ret_seen[i]))
            return rb_why_set(why, rb_error_from_errno(errno), "%s: %s", tls->path[i],
                              strerror(errno));
    return 0;
}

/* For these errors GnuTLS does not say which file is at fault, or what to do. */
static int pair_failed(const struct rb_tls *tls, int status, struct rb_why *why)
{
    if (status == GNUTLS_E_DECRYPTION_FAILED)
        return rb_why_set(why, RB_EINVAL,
                          "%s is encrypted, and nobody can be asked for its password: store it "
                          "without one (openssl pkey)",
                          tls->path[KEY]);
    return rb_why_set(why, RB_EINVAL, "%s with %s: %s", tls->path[CERTIFICATE], names[KEY],
                      gnutls_strerror(status));
}

static int read_keys(const struct rb_tls *tls, struct rb_tls_keys **ret_keys, struct rb_why *why)
{
    struct rb_tls_keys *keys;
    int status, err = 0;

    for (int i = 0; i < FILES; i++)
        if (access(tls->path[i], R_OK))
            return rb_why_set(why, rb_error_from_errno(errno), "%s: %s", tls->path[i],
                              strerror(errno));
    keys = rb_alloc(sizeof *keys);
    keys->users = 1;
    gnutls_certificate_allocate_credentials(&keys->credentials);
    status = gnutls_certificate_set_x509_trust_file(keys->credentials, tls->path[AUTHORITY],
                                                    GNUTLS_X509_FMT_PEM);
    if (status <= 0)
        err = rb_why_set(why, RB_EINVAL, "%s: %s", tls->path[AUTHORITY],
                         status ? gnutls_strerror(status) : "there is no certificate in it");
    if (!err)
        status = gnutls_certificate_set_x509_key_file(keys->credentials, tls->path[CERTIFICATE],
                                                      tls->path[KEY], GNUTLS_X509_FMT_PEM);
    if (!err && status < 0)
        err = pair_failed(tls, status, why);
    if (err)
        rb_tls_keys_drop(keys);
    else
        *ret_keys = keys;
    return err;
}

int rb_tls_new(const char *folder, struct rb_tls **ret_tls, struct rb_why *why)
{
    struct rb_tls *tls = rb_alloc(sizeof *tls);
    int err;

    for (int i = 0; i < FILES; i++)
        tls->path[i] = rb_format("%s/%s", folder, names[i]);
    err = look(tls, tls->seen, why);
    err = err ? err : read_keys(tls, &tls->keys, why);
    if (err)
        rb_tls_free(tls);
    else
        *ret_tls = tls;
    return err;
}

void rb_tls_free(struct rb_tls *tls)
{
    if (!tls)
        return;
    rb_tls_keys_drop(tls->keys);
    for (int i = 0; i < FILES; i++)
        free(tls->path[i]);
    free(tls);
}

char *rb_tls_explain(unsigned found)
{
    gnutls_datum_t text = {NULL, 0};

    gnutls_certificate_verification_status_print(found, GNUTLS_CRT_X509, &text, 0);
    while (text.size && text.data[text.size - 1] == ' ')
        text.data[--text.size] = '\0';
    return (char *)text.data;
}

/* Checks the leaf alone, for errors of which one can say what to do. */
static int check_leaf(gnutls_x509_crt_t leaf, const char *path, const char *host,
                      struct rb_why *why)
{
    const time_t now = time(NULL);

    if (gnutls_x509_crt_get_expiration_time(leaf) < now)
        return rb_why_set(why, RB_EINVAL, "%s has expired", path);
    if (gnutls_x509_crt_get_activation_time(leaf) > now)
        return rb_why_set(why, RB_EINVAL, "%s is not valid yet: is this node's clock right?", path);
    if (!gnutls_x509_crt_check_key_purpose(leaf, GNUTLS_KP_TLS_WWW_SERVER, 0))
        return rb_why_set(why, RB_EINVAL, "%s is of a user: it may call, and not be called", path);
    if (!gnutls_x509_crt_check_key_purpose(leaf, GNUTLS_KP_TLS_WWW_CLIENT, 0))
        return rb_why_set(why, RB_EINVAL,
                          "%s may be called, and not call, as nodes do: make one that is for "
                          "clients (clientAuth), too",
                          path);
    if (!gnutls_x509_crt_check_hostname(leaf, host))
        return rb_why_set(why, RB_EINVAL,
                          "%s is not for %s, by which others call this node: make one that has it "
                          "as a subject alternative name",
                          path, host);
    return 0;
}

/* Checks the chain as others with the same authorities do. */
static int check_chain(const struct rb_tls *tls, gnutls_x509_crt_t *own, unsigned n,
                       struct rb_why *why)
{
    gnutls_x509_trust_list_t trusted;
    unsigned found = 0;
    char *text;
    int status;

    gnutls_certificate_get_trust_list(tls->keys->credentials, &trusted);
    status = gnutls_x509_trust_list_verify_crt2(trusted, own, n, NULL, 0, 0, &found, NULL);
    if (!status && !found)
        return 0;
    text = rb_tls_explain(found);
    rb_why_set(why, RB_EINVAL,
               "%s does not lead to %s: %s Whoever stands between them belongs into %s",
               tls->path[CERTIFICATE], names[AUTHORITY], status ? gnutls_strerror(status) : text,
               names[CERTIFICATE]);
    gnutls_free(text);
    return RB_EINVAL;
}

static unsigned own_chain(const struct rb_tls *tls, gnutls_x509_crt_t **ret_own)
{
    unsigned n = 0;

    return gnutls_certificate_get_x509_crt(tls->keys->credentials, 0, ret_own, &n) ? 0 : n;
}

static void chain_free(gnutls_x509_crt_t *own, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        gnutls_x509_crt_deinit(own[i]);
    if (n)
        gnutls_free(own);
}

int rb_tls_serves(const struct rb_tls *tls, const char *host, struct rb_why *why)
{
    gnutls_x509_crt_t *own;
    unsigned n = own_chain(tls, &own);
    int err;

    if (!n)
        return rb_why_set(why, RB_EINVAL, "%s cannot be read", tls->path[CERTIFICATE]);
    err = check_leaf(own[0], tls->path[CERTIFICATE], host, why);
    err = err ? err : check_chain(tls, own, n, why);
    chain_free(own, n);
    return err;
}

static void narrow(gnutls_x509_crt_t certificate, int64_t *from, int64_t *until)
{
    int64_t since = gnutls_x509_crt_get_activation_time(certificate);
    int64_t expires = gnutls_x509_crt_get_expiration_time(certificate);

    *from = since > *from ? since : *from;
    *until = expires < *until ? expires : *until;
}

void rb_tls_valid(const struct rb_tls *tls, int64_t *ret_from, int64_t *ret_until)
{
    gnutls_x509_crt_t *own, authority;
    unsigned n = own_chain(tls, &own);

    *ret_from = 0;
    *ret_until = INT64_MAX;
    for (unsigned i = 0; i < n; i++)
        narrow(own[i], ret_from, ret_until);
    if (n && !gnutls_certificate_get_issuer(tls->keys->credentials, own[n - 1], &authority, 0))
        narrow(authority, ret_from, ret_until); /* the credentials own it */
    chain_free(own, n);
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

int rb_tls_renew(struct rb_tls *tls, bool *ret_new, struct rb_why *why)
{
    struct stat seen[FILES];
    struct rb_tls_keys *keys;
    int err = look(tls, seen, why);
    bool all = true;

    if (ret_new)
        *ret_new = false;
    for (int i = 0; !err && i < FILES; i++)
        all = all && same(&seen[i], &tls->seen[i]);
    if (err || all)
        return err;
    err = read_keys(tls, &keys, why);
    if (err)
        return err;
    rb_tls_keys_drop(tls->keys);
    tls->keys = keys;
    memcpy(tls->seen, seen, sizeof seen);
    if (ret_new)
        *ret_new = true;
    return 0;
}

struct rb_tls_keys *rb_tls_keys_take(struct rb_tls *tls)
{
    rb_tls_renew(tls, NULL, NULL); /* files may not fit together while they are being replaced */
    tls->keys->users++;
    return tls->keys;
}
