/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing calls into curl from within curl's own callbacks.  Answers are handed out after curl has
 * given them back, so that a callback may start or cancel any call. */
#include "daemon/etcd/etcd.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "daemon/etcd/curl.h"
#include "daemon/etcd/json.h"
#include "proto/tls.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ANSWER_LIMIT = 64 << 20,
    LINE_LIMIT = 16 << 20,
    CONNECT_MS = 2000,
    KEEPALIVE_S = 3, /* TCP's, on an idle watch: a machine that is gone is noticed */
};

struct rb_etcd {
    struct rb_curl *curl;
    struct curl_slist *headers;
    char **endpoints;
    size_t n, current;
    char *names;
    char *authority, *certificate, *key; /* files; NULL: the system's authorities, nothing shown */
    struct rb_etcd_call *calls;
    bool busy; /* curl is handing out answers: no freeing in between */
};

struct rb_etcd_call {
    struct rb_etcd *etcd;
    struct rb_etcd_call *next, **self;
    CURL *easy;
    char *path;
    char *body;
    uint64_t timeout_ms;
    size_t endpoint, tries;
    struct rb_buffer in;
    bool watch, canceled, too_large;
    void (*line)(const json_t *message, void *context);
    rb_etcd_answered *done;
    void *context;
};

/* ---- Calls ----------------------------------------------------------------------------------- */

static void call_free(struct rb_etcd_call *call)
{
    *call->self = call->next;
    if (call->next)
        call->next->self = call->self;
    if (call->easy) {
        curl_multi_remove_handle(rb_curl_multi(call->etcd->curl), call->easy);
        curl_easy_cleanup(call->easy);
    }
    rb_buffer_done(&call->in);
    free(call->path);
    free(call->body);
    free(call);
}

/* Take whole lines off a watch's stream.  Stops where the call is cancelled by its owner. */
static void take_lines(struct rb_etcd_call *call)
{
    size_t start = 0;
    while (!call->canceled && start < call->in.size) {
        char *from = call->in.data + start;
        char *end = memchr(from, '\n', call->in.size - start);
        if (!end)
            break;
        json_t *message = json_loadb(from, (size_t)(end - from), 0, NULL);
        start = (size_t)(end - call->in.data) + 1;
        if (message)
            call->line(message, call->context);
        json_decref(message);
    }
    if (!call->canceled)
        rb_buffer_drop(&call->in, start);
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *context)
{
    struct rb_etcd_call *call = context;
    size_t limit = call->watch ? LINE_LIMIT : ANSWER_LIMIT;
    (void)one;
    if (call->canceled)
        return 0;
    if (n > limit - call->in.size) {
        call->too_large = true;
        return 0; /* ends the transfer */
    }
    rb_buffer_add(&call->in, bytes, n);
    return n;
}

static void set_endpoint(struct rb_etcd_call *call)
{
    struct rb_etcd *etcd = call->etcd;
    const char *endpoint = etcd->endpoints[call->endpoint];
    bool local = !strncmp(endpoint, "unix:", 5);
    char *url = rb_format("%s%s", local ? "http://etcd" : endpoint, call->path);
    curl_easy_setopt(call->easy, CURLOPT_URL, url);
    curl_easy_setopt(call->easy, CURLOPT_UNIX_SOCKET_PATH, local ? endpoint + 5 : NULL);
    free(url);
}

static void start(struct rb_etcd_call *call)
{
    CURL *easy = call->easy = curl_easy_init();
    if (!easy)
        abort(); /* memory is out */
    set_endpoint(call);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    if (call->etcd->authority) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, call->etcd->authority);
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
        curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, 0L); /* it may be renewed */
        curl_easy_setopt(easy, CURLOPT_SSLCERT, call->etcd->certificate);
        curl_easy_setopt(easy, CURLOPT_SSLKEY, call->etcd->key);
    }
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->etcd->headers);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(call->body));
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
    if (call->watch) {
        curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
        curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
        curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_S);
        curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 1L);
    } else {
        curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
    }
    curl_multi_add_handle(rb_curl_multi(call->etcd->curl), easy);
}

static struct rb_etcd_call *new_call(struct rb_etcd *etcd, const char *path, char *body,
                                     rb_etcd_answered *done, void *context)
{
    struct rb_etcd_call *call = rb_alloc(sizeof(*call));
    call->etcd = etcd;
    call->path = rb_string(path);
    call->body = body;
    call->endpoint = etcd->current;
    call->done = done;
    call->context = context;
    call->next = etcd->calls;
    call->self = &etcd->calls;
    if (call->next)
        call->next->self = &call->next;
    etcd->calls = call;
    return call;
}

struct rb_etcd_call *rb_etcd_post(struct rb_etcd *etcd, const char *path, char *body,
                                  uint64_t timeout_ms, rb_etcd_answered *done, void *context)
{
    struct rb_etcd_call *call = new_call(etcd, path, body, done, context);
    call->timeout_ms = timeout_ms;
    start(call);
    return call;
}

struct rb_etcd_call *rb_etcd_watch(struct rb_etcd *etcd, char *create,
                                   void (*line)(const json_t *message, void *context),
                                   rb_etcd_answered *ended, void *context)
{
    struct rb_etcd_call *call = new_call(etcd, "/v3/watch", create, ended, context);
    call->watch = true;
    call->line = line;
    start(call);
    return call;
}

void rb_etcd_cancel(struct rb_etcd_call *call)
{
    if (!call)
        return;
    call->canceled = true;
    if (!call->etcd->busy)
        call_free(call);
}

/* ---- Ends of calls --------------------------------------------------------------------------- */

/* Was the request never sent?  Then another endpoint may have it. */
static bool unsent(CURLcode code)
{
    return code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST;
}

static bool try_next(struct rb_etcd_call *call, CURLcode code)
{
    struct rb_etcd *etcd = call->etcd;
    if (code == CURLE_OK)
        return false;
    if (etcd->current == call->endpoint)
        etcd->current = (call->endpoint + 1) % etcd->n;
    if (!unsent(code) || call->watch || ++call->tries >= etcd->n)
        return false;
    call->endpoint = (call->endpoint + 1) % etcd->n;
    curl_easy_cleanup(call->easy);
    start(call);
    return true;
}

static void finish(struct rb_etcd_call *call, CURLcode code, long status)
{
    struct rb_why why = {0};
    json_t *answer = NULL;
    int err = RB_OK;
    const char *endpoint = call->etcd->endpoints[call->endpoint];
    if (call->too_large) {
        err = rb_why_set(&why, RB_EINVAL, "etcd at %s: an answer is too large", endpoint);
    } else if (code == CURLE_OPERATION_TIMEDOUT) {
        err = rb_why_set(&why, RB_ETIMEOUT, "etcd at %s does not answer", endpoint);
    } else if (code != CURLE_OK) {
        err =
            rb_why_set(&why, RB_EUNREACHABLE, "etcd at %s: %s", endpoint, curl_easy_strerror(code));
    } else if (call->watch && status == 200) {
        err = rb_why_set(&why, RB_EUNREACHABLE, "etcd at %s ended the watch", endpoint);
    } else {
        answer = json_loadb(call->in.data ? call->in.data : "", call->in.size, 0, NULL);
        if (status != 200)
            err = rb_etcd_error_read(status, answer, &why);
        else if (!answer)
            err = rb_why_set(&why, RB_EINVAL, "etcd at %s: the answer is no JSON", endpoint);
    }
    if (!call->canceled)
        call->done(err, &why, answer, call->context);
    json_decref(answer);
    call_free(call);
}

/* Hand out lines and answers.  Calls are only marked by rb_etcd_cancel meanwhile. */
static void deliver(void *context)
{
    struct rb_etcd *etcd = context;
    CURLM *multi = rb_curl_multi(etcd->curl);
    if (etcd->busy)
        return;
    etcd->busy = true;
    for (struct rb_etcd_call *call = etcd->calls; call; call = call->next)
        if (call->watch && !call->canceled)
            take_lines(call);
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(multi, &left));) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURL *easy = message->easy_handle;
        CURLcode code = message->data.result;
        struct rb_etcd_call *call = NULL;
        long status = 0;
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&call);
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
        curl_multi_remove_handle(multi, easy);
        if (!call->canceled && try_next(call, code))
            continue;
        curl_easy_cleanup(easy);
        call->easy = NULL;
        finish(call, code, status);
    }
    for (struct rb_etcd_call *call = etcd->calls, *next; call; call = next) {
        next = call->next;
        if (call->canceled)
            call_free(call);
    }
    etcd->busy = false;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static int take_endpoints(struct rb_etcd *etcd, const char *const *endpoints, size_t n,
                          struct rb_why *why)
{
    struct rb_buffer names = {0};
    if (!n)
        return rb_why_set(why, RB_EINVAL, "no etcd endpoint given");
    etcd->endpoints = rb_alloc(n * sizeof(*etcd->endpoints));
    for (size_t i = 0; i < n; i++) {
        const char *text = endpoints[i];
        if (strncmp(text, "http://", 7) && strncmp(text, "https://", 8) &&
            strncmp(text, "unix:", 5)) {
            rb_buffer_done(&names);
            return rb_why_set(why, RB_EINVAL,
                              "etcd endpoint '%s': write http://HOST:PORT, https://HOST:PORT or "
                              "unix:PATH",
                              text);
        }
        size_t length = strlen(text);
        while (length && text[length - 1] == '/')
            length--;
        etcd->endpoints[etcd->n++] = rb_format("%.*s", (int)length, text);
        rb_buffer_format(&names, "%s%s", i ? ", " : "", text);
    }
    etcd->names = rb_buffer_take(&names);
    return RB_OK;
}

static void memory_free(struct rb_etcd *etcd)
{
    for (size_t i = 0; i < etcd->n; i++)
        free(etcd->endpoints[i]);
    free(etcd->endpoints);
    free(etcd->names);
    free(etcd->authority);
    free(etcd->certificate);
    free(etcd->key);
    free(etcd);
}

int rb_etcd_new(uv_loop_t *loop, const char *const *endpoints, size_t n, struct rb_etcd **ret_etcd,
                struct rb_why *why)
{
    struct rb_etcd *etcd = rb_alloc(sizeof(*etcd));
    int err = take_endpoints(etcd, endpoints, n, why);
    if (!err && !(etcd->curl = rb_curl_new(loop, deliver, etcd)))
        err = rb_why_set(why, RB_EINTERNAL, "libcurl cannot start");
    if (err) {
        memory_free(etcd);
        return err;
    }
    /* On loss of quorum a watch must end, not hang. */
    etcd->headers = curl_slist_append(NULL, "Grpc-Metadata-hasleader: true");
    etcd->headers = curl_slist_append(etcd->headers, "Content-Type: application/json");
    etcd->headers = curl_slist_append(etcd->headers, "Expect:");
    *ret_etcd = etcd;
    return RB_OK;
}

int rb_etcd_secure(struct rb_etcd *etcd, const char *folder, struct rb_why *why)
{
    etcd->authority = rb_format("%s/ca.crt", folder);
    etcd->certificate = rb_format("%s/tls.crt", folder);
    etcd->key = rb_format("%s/tls.key", folder);
    if (access(etcd->authority, R_OK))
        return rb_why_set(why, rb_error_from_errno(errno), "%s: %s", etcd->authority,
                          strerror(errno));
    if (access(etcd->certificate, F_OK) && access(etcd->key, F_OK)) { /* etcd may ask for none */
        free(RB_TAKE(etcd->certificate));
        free(RB_TAKE(etcd->key));
        return RB_OK;
    }
    struct rb_tls *tls = NULL; /* curl would not say what is wrong with them */
    int err = rb_tls_new(folder, &tls, why);
    rb_tls_free(tls);
    return err;
}

const char *rb_etcd_names(const struct rb_etcd *etcd)
{
    return etcd->names;
}

void rb_etcd_turn(struct rb_etcd *etcd)
{
    etcd->current = (etcd->current + 1) % etcd->n;
}

void rb_etcd_free(struct rb_etcd *etcd)
{
    if (!etcd)
        return;
    while (etcd->calls)
        call_free(etcd->calls);
    curl_slist_free_all(etcd->headers);
    rb_curl_free(etcd->curl);
    memory_free(etcd);
}
