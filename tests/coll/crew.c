/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/coll/crew.h"

#include "base/file.h"
#include "base/sanitized.h"
#include "coll/reach.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WATCHDOG_S = RB_SANITIZED ? 600 : 120 };

int crew_open(struct crew *crew, uint32_t configuration, int timeout_ms, struct rb_coll **ret,
              struct rb_why *why)
{
    struct rb_coll_member members[CREW_MAX];
    const char *addresses[CREW_MAX][1];
    char names[CREW_MAX][24];
    struct rb_group group = {
        .job = "crew",
        .configuration = configuration,
        .digest = "0123",
        .rank = crew->rank,
        .size = crew->size,
        .members = members,
        .no_shared_memory = crew->link == CREW_UNIX,
    };

    for (int r = 0; r < crew->size; r++) {
        snprintf(names[r], sizeof names[r], "worker-%d", r);
        addresses[r][0] = crew->board->address[r];
        members[r] = (struct rb_coll_member){names[r], addresses[r], 1};
    }
    return rb_coll_open(crew->listener, &group, timeout_ms, NULL, ret, why);
}

static void serve(struct crew *crew, crew_body *body)
{
    struct rb_why why = {{0}};
    char path[CREW_TEXT];
    bool tcp = crew->link == CREW_TCP;

    alarm(WATCHDOG_S);
    rb_reach_allow();
    snprintf(path, sizeof path, "%s/%d.sock", crew->folder, crew->rank);
    CREW_OK(crew,
            rb_listener_open(tcp ? NULL : path, tcp ? "127.0.0.1" : NULL, &crew->listener, &why),
            &why);
    snprintf(crew->board->address[crew->rank], CREW_TEXT, "%s",
             rb_listener_address(crew->listener, 0));
    pthread_barrier_wait(&crew->board->start);
    body(crew);
    rb_listener_close(crew->listener);
    exit(0);
}

static struct crew_board *make_board(int size)
{
    struct crew_board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attributes;

    assert_true(board != MAP_FAILED);
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&board->start, &attributes, (unsigned)size);
    pthread_barrierattr_destroy(&attributes);
    return board;
}

void crew_run(int size, enum crew_link link, unsigned dead, crew_body *body, const void *data)
{
    struct crew crew = {.size = size, .link = link, .data = data};
    pid_t pids[CREW_MAX];
    bool well = true;

    strcpy(crew.folder, "/tmp/rubato-coll-XXXXXX");
    assert_non_null(mkdtemp(crew.folder));
    crew.board = make_board(size);
    fflush(NULL);
    for (crew.rank = 0; crew.rank < size; crew.rank++) {
        pids[crew.rank] = fork();
        assert_true(pids[crew.rank] >= 0);
        if (!pids[crew.rank])
            serve(&crew, body);
    }
    for (int r = 0; r < size; r++) {
        int status = 0;
        bool killed;

        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (dead & 1u << r ? !killed : status != 0) {
            fprintf(stderr, "rank %d of %d, link %d, ended with status %#x\n", r, size, link,
                    status);
            well = false;
        }
    }
    munmap(crew.board, sizeof *crew.board);
    rb_file_remove(crew.folder, NULL);
    assert_true(well);
}
