/* SPDX-License-Identifier: Apache-2.0 */
/* A server whose callers are plain sockets, so that they may send and take whatever they like.  Its
 * times are short and its places few.
 *
 * methods: echo answers at once, large answers with a piece of LARGE bytes, hold answers when a
 * test does. */
#ifndef RB_TESTS_DAEMON_SERVER_SCENE_H
#define RB_TESTS_DAEMON_SERVER_SCENE_H

#include "base/buffer.h"
#include "daemon/rpc/request.h"
#include "tests/daemon/until.h"

enum { MOST = 8, SILENT_MS = 200, STALLED_MS = 2000, DEAF_MS = 2000, LARGE = 8 << 20 };

struct scene {
    struct until until;
    char folder[64];
    struct rb_etcd *etcd;
    struct rb_store *store;
    struct rb_server *server;
    struct rb_request *held[MOST];
    size_t n_held, n_large;
};

/* cmocka's, around each test; *state: the scene. */
int scene_setup(void **state);
int scene_teardown(void **state);

int scene_call_in(struct scene *scene); /* the socket of a new caller, which waits for nothing */

/* Send a call, but for its last `less` bytes. */
void scene_send(int fd, const Rb__Call *call, size_t less);
void scene_say(int fd, const char *method, size_t less);

/* The answer: 0 or its error; of an answer in pieces the first. */
int scene_answer(struct scene *scene, int fd);
int scene_ask(struct scene *scene, int fd); /* echo */

bool scene_forget(int fd);              /* take what is there; true */
size_t scene_take(int fd, size_t most); /* take and forget so much of what is there */
bool scene_is_shut(int fd);
uint64_t scene_shut_ms(struct scene *scene, int fd, uint64_t since_ns); /* when it is; closes it */

#endif
