/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl on libuv: sockets are polls, curl's timer is a timer.
 *
 * etcd client > [curl] > libcurl, the loop */
#ifndef RB_DAEMON_ETCD_CURL_H
#define RB_DAEMON_ETCD_CURL_H

#include <curl/curl.h>
#include <uv.h>

struct rb_curl;

/* `moved` runs, outside of curl's own callbacks, whenever transfers may have got further: answers
 * are to be fetched from the multi handle.  NULL: libcurl cannot start. */
struct rb_curl *rb_curl_new(uv_loop_t *loop, void (*moved)(void *context), void *context);

CURLM *rb_curl_multi(const struct rb_curl *curl); /* to add transfers to */

/* All transfers have been removed.  The loop must run once more behind it. */
void rb_curl_free(struct rb_curl *curl);

#endif
