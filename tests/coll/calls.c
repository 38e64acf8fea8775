/* SPDX-License-Identifier: Apache-2.0 */
/* Every call on every kind of link, in groups of one to five. */
#include "tests/coll/calls_inside.h"

#include "base/arena.h"
#include "base/sanitized.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

uint8_t pattern(size_t i, int root)
{
    return (uint8_t)(i * 31 + (i >> 8) + (size_t)root);
}

void write_pattern(uint8_t *bytes, size_t size, int root)
{
    for (size_t i = 0; i < size && i < PATTERN; i++)
        bytes[i] = pattern(i, root);
    for (size_t i = PATTERN; i < size; i += PATTERN)
        memcpy(bytes + i, bytes, size - i < PATTERN ? size - i : PATTERN);
}

bool is_pattern(const uint8_t *bytes, size_t size, int root)
{
    uint8_t expected[PATTERN];
    size_t head = size < PATTERN ? size : PATTERN;

    write_pattern(expected, head, root);
    return !memcmp(bytes, expected, head) && !memcmp(bytes + head, bytes, size - head);
}

void check_gather(struct crew *crew, struct rb_coll *coll, uint64_t tag, size_t size)
{
    char *mine = rb_alloc(size), *all = rb_alloc(size * (size_t)crew->size + 1);
    struct rb_why why = {{0}};

    memset(mine, 'a' + crew->rank, size);
    all[size * (size_t)crew->size] = '!';
    CREW_OK(crew, rb_coll_gather(coll, tag, mine, all, size, &why), &why);
    for (int r = 0; r < crew->size; r++)
        CREW_CHECK(crew, all_are(all + (size_t)r * size, 'a' + r, size));
    CREW_CHECK(crew, all[size * (size_t)crew->size] == '!');
    free(mine);
    free(all);
}

static void check_broadcast(struct crew *crew, struct rb_coll *coll, uint64_t tag, int root,
                            size_t size)
{
    uint8_t *bytes = rb_alloc(size + 1);
    struct rb_why why = {{0}};

    if (crew->rank == root)
        write_pattern(bytes, size, root);
    bytes[size] = '!';
    CREW_OK(crew, rb_coll_broadcast(coll, tag, root, bytes, size, &why), &why);
    CREW_CHECK(crew, is_pattern(bytes, size, root));
    CREW_CHECK(crew, bytes[size] == '!');
    free(bytes);
}

static void all_calls(struct crew *crew)
{
    static const size_t counts[] = {0, 1, 7, 16, 1000, 2048, 2049, 65536, 1000003};
    /* The last size is more than any link takes; with a sanitizer, more than shared memory takes,
     * because each byte takes longer there. */
    static const size_t sizes[] = {1, 3, 8, 100, 70001, RB_SANITIZED ? 1000001 : 3000001};
    static const char *const links[] = {"shared memory", "unix", "tcp"};
    struct rb_coll *coll;
    struct rb_why why = {{0}};
    uint64_t tag = 0;

    CREW_OK(crew, crew_open(crew, 1, 30000, &coll, &why), &why);
    CREW_CHECK(crew, rb_coll_size(coll) == crew->size && rb_coll_rank(coll) == crew->rank);
    for (int r = 0; r < crew->size; r++)
        CREW_CHECK(crew,
                   !strcmp(rb_coll_link(coll, r), r == crew->rank ? "none" : links[crew->link]));
    for (size_t i = 0; i < RB_COUNT(counts); i++)
        check_sum(crew, coll, ++tag, counts[i]);
    for (size_t i = 0; i < RB_COUNT(sizes); i++) {
        check_gather(crew, coll, ++tag, sizes[i]);
        for (int root = 0; root < crew->size; root++)
            check_broadcast(crew, coll, ++tag, root, sizes[i]);
        if (crew->size > 1)
            check_ring(crew, coll, ++tag, sizes[i]);
        check_wait(crew, coll, ++tag);
        check_posts(crew, coll, tag + 1, sizes[i]);
        tag += 4;
        check_pieces(crew, coll, tag + 1, sizes[i]);
        tag += 2;
        check_flush(crew, coll, tag + 1, sizes[i]);
        tag += 4;
        check_sum(crew, coll, ++tag, sizes[i] % 50000);
        check_ranges(crew, coll, ++tag, sizes[i] % 200000);
        check_makers(crew, coll, ++tag, sizes[i] % 50000);
        check_moves(crew, coll, ++tag, sizes[i] % 200000);
    }
    check_makers(crew, coll, ++tag, 300000); /* segments that are fetched */
    for (int i = 0; i < 300; i++)
        check_sum(crew, coll, ++tag, (size_t)i);
    CREW_CHECK(crew, crew->size == 1 || rb_coll_bytes_sent(coll) > 1000000);
    CREW_CHECK(crew, !rb_coll_lost(coll, crew->rank));
    rb_coll_close(coll);
}

static void over_shared_memory(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++)
        crew_run(size, CREW_SHARED, 0, all_calls, NULL);
}

static void over_unix(void **state)
{
    (void)state;
    for (int size = 2; size <= 5; size++)
        crew_run(size, CREW_UNIX, 0, all_calls, NULL);
}

static void over_tcp(void **state)
{
    (void)state;
    for (int size = 2; size <= 5; size++)
        crew_run(size, CREW_TCP, 0, all_calls, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_shared_memory),
        cmocka_unit_test(over_unix),
        cmocka_unit_test(over_tcp),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
