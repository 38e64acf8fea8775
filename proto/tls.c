/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/tls_inside.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

struct rb_tls_session {
    gnutls_session_t session;
    char *host;                      /* the host that is called; NULL: this side is called */
    gnutls_typed_vdata_st wanted[2]; /* of the other's certificate: GnuTLS reads them here */
    struct rb_tls_keys *keys;
    struct rb_tls_line line;
};

static ssize_t pull(gnutls_transport_ptr_t context, void *to, size_t room)
{
    const struct rb_tls_session *session = context;

    return session->line.pull(session->line.context, to, room);
}

static ssize_t push(gnutls_transport_ptr_t context, const void *bytes, size_t size)
{
    const struct rb_tls_session *session = context;

    return session->line.push(session->line.context, bytes, size);
}

/* The called side must have the name that it is called by.  Addresses are not names to ask for. */
static void expect(struct rb_tls_session *session)
{
    char *host = session->host;

    session->wanted[0].type = GNUTLS_DT_KEY_PURPOSE_OID;
    session->wanted[0].data =
        (unsigned char *)(host ? GNUTLS_KP_TLS_WWW_SERVER : GNUTLS_KP_TLS_WWW_CLIENT);
    session->wanted[1].type = GNUTLS_DT_DNS_HOSTNAME;
    session->wanted[1].data = (unsigned char *)host;
    gnutls_session_set_verify_cert2(session->session, session->wanted, host ? 2 : 1, 0);
    if (!host)
        gnutls_certificate_server_set_request(session->session, GNUTLS_CERT_REQUIRE);
    else if (strspn(host, "0123456789.") != strlen(host) && !strchr(host, ':'))
        gnutls_server_name_set(session->session, GNUTLS_NAME_DNS, host, strlen(host));
}

int rb_tls_open(struct rb_tls *tls, const char *host, const struct rb_tls_line *line,
                struct rb_tls_session **ret_session, struct rb_why *why)
{
    struct rb_tls_session *session = rb_alloc(sizeof *session);
    int status;

    session->keys = rb_tls_keys_take(tls);
    session->host = host ? rb_string(host) : NULL;
    session->line = *line;
    status = gnutls_init(&session->session, (host ? GNUTLS_CLIENT : GNUTLS_SERVER) |
                                                GNUTLS_NONBLOCK | GNUTLS_NO_TICKETS);
    if (!status)
        status =
            gnutls_priority_set_direct(session->session, "NORMAL:-VERS-ALL:+VERS-TLS1.3", NULL);
    if (!status)
        status = gnutls_credentials_set(session->session, GNUTLS_CRD_CERTIFICATE,
                                        session->keys->credentials);
    if (status) {
        rb_tls_close(session);
        return rb_why_set(why, RB_EINTERNAL, "TLS: %s", gnutls_strerror(status));
    }
    expect(session);
    gnutls_handshake_set_timeout(session->session,
                                 GNUTLS_INDEFINITE_TIMEOUT); /* callers have their own */
    gnutls_transport_set_ptr(session->session, session);
    gnutls_transport_set_pull_function(session->session, pull);
    gnutls_transport_set_push_function(session->session, push);
    *ret_session = session;
    return 0;
}

void rb_tls_close(struct rb_tls_session *session)
{
    if (!session)
        return;
    if (session->session)
        gnutls_deinit(session->session);
    rb_tls_keys_drop(session->keys);
    free(session->host);
    free(session);
}

/* Why the other side's certificate will not do. */
static int distrusted(gnutls_session_t session, struct rb_why *why)
{
    char *text = rb_tls_explain(gnutls_session_get_verify_cert_status(session));
    const int err =
        rb_why_set(why, RB_EREFUSED, "its certificate will not do: %s", text ? text : "");

    gnutls_free(text);
    return err;
}

static int failed(const struct rb_tls_session *session, int status, struct rb_why *why)
{
    switch (status) {
    case GNUTLS_E_AGAIN:
    case GNUTLS_E_INTERRUPTED:
        return RB_EAGAIN;
    case GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR:
        return distrusted(session->session, why);
    case GNUTLS_E_NO_CERTIFICATE_FOUND:
    case GNUTLS_E_CERTIFICATE_REQUIRED:
        return rb_why_set(why, RB_EREFUSED, "it has shown no certificate");
    case GNUTLS_E_FATAL_ALERT_RECEIVED:
        return rb_why_set(why, RB_EREFUSED, "it does not take our certificate, or our TLS: %s",
                          gnutls_alert_get_name(gnutls_alert_get(session->session)));
    case GNUTLS_E_UNEXPECTED_PACKET_LENGTH:
    case GNUTLS_E_UNSUPPORTED_VERSION_PACKET:
    case GNUTLS_E_UNEXPECTED_PACKET:
        return rb_why_set(why, RB_EREFUSED, "it does not speak TLS 1.3");
    case GNUTLS_E_PREMATURE_TERMINATION:
    case GNUTLS_E_PULL_ERROR:
    case GNUTLS_E_PUSH_ERROR:
        return rb_why_set(why, RB_EPEER, "the connection was closed");
    default:
        return rb_why_set(why, RB_EREFUSED, "TLS: %s", gnutls_strerror(status));
    }
}

int rb_tls_shake(struct rb_tls_session *session, struct rb_why *why)
{
    int status = gnutls_handshake(session->session), err;

    while (status < 0 && !gnutls_error_is_fatal(status) && status != GNUTLS_E_AGAIN &&
           status != GNUTLS_E_INTERRUPTED)
        status = gnutls_handshake(session->session); /* a warning */
    if (status == 0)
        return 0;
    err = failed(session, status, why);
    if (err != RB_EAGAIN)
        gnutls_alert_send_appropriate(session->session, status);
    return err;
}

/* Frames say where they end, so an end without a farewell counts as an end, too. */
int rb_tls_read(struct rb_tls_session *session, void *to, size_t room, size_t *ret_size,
                struct rb_why *why)
{
    ssize_t got = gnutls_record_recv(session->session, to, room);

    if (got < 0 && got != GNUTLS_E_PREMATURE_TERMINATION)
        return failed(session, (int)got, why);
    *ret_size = got > 0 ? (size_t)got : 0;
    return 0;
}

int rb_tls_write(struct rb_tls_session *session, const void *bytes, size_t size, size_t *ret_size,
                 struct rb_why *why)
{
    ssize_t put = gnutls_record_send(session->session, bytes, size);

    if (put < 0)
        return failed(session, (int)put, why);
    *ret_size = (size_t)put;
    return 0;
}

bool rb_tls_writes(const struct rb_tls_session *session)
{
    return gnutls_record_get_direction(session->session) == 1;
}
