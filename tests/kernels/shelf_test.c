/* SPDX-License-Identifier: Apache-2.0 */
/* Shelves between two processes: what one puts there the other takes, whichever ends first; an
 * address that is none is refused, and nothing is left behind.
 *
 * The owner is this program once more, told what to do by a socket.  Devices are those of the
 * module named by RUBATO_CUDA_MODULE: the owner's is the last, the taker's the first.  Without a
 * module the test is skipped. */
#include "kernels/device.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { COUNT = 300000, FIRST = 1000, SECOND = COUNT - FIRST, BYTES = COUNT * 4, AT = 256 };

static uint32_t number(uint32_t seed, uint32_t i)
{
    return (seed + i) * 2654435761u ^ i;
}

/* ---- The owner --------------------------------------------------------------------------------*/

enum order { PUT = 1, CLOSE };

/* For a machine's table (tests/gpu/run), and for a reader who asks why the test is skipped. */
static void say_none(const char *why)
{
    printf("TABLE   no shelves here: %s\n", why);
    fflush(stdout);
}

struct owner {
    pid_t pid;
    int fd;
};

static void put(struct rb_device *device, struct rb_shelf *shelf, uint32_t *memory, uint32_t seed)
{
    const struct iovec pieces[] = {{memory, FIRST * 4}, {memory + FIRST, SECOND * 4}};

    for (uint32_t i = 0; i < COUNT; i++)
        memory[i] = number(seed, i);
    rb_device_push(device, memory, BYTES);
    rb_shelf_put(shelf, AT, pieces, 2);
    memset(memory, 0, BYTES); /* what was put is a copy */
    rb_device_push(device, memory, BYTES);
}

static int own(int fd)
{
    uint8_t address[RB_SHELF_ADDRESS];
    struct rb_device *device;
    struct rb_shelf *shelf;
    struct rb_why why = {{0}};
    uint32_t order[2], *memory;
    int count;

    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (rb_device_count("cuda", &count, &why) || rb_device_open("cuda", count - 1, &device, &why) ||
        rb_shelf_open(device, AT + BYTES, address, &shelf, &why)) {
        say_none(why.text);
        return 1;
    }
    memory = rb_device_alloc(device, BYTES);
    if (write(fd, address, sizeof address) != sizeof address)
        return 1;
    while (read(fd, order, sizeof order) == sizeof order) {
        if (order[0] == PUT) {
            put(device, shelf, memory, order[1]);
        } else {
            rb_shelf_close(shelf);
            shelf = NULL;
        }
        order[0] = (uint32_t)rb_device_check(device, &why);
        if (write(fd, order, sizeof order) != sizeof order)
            return 1;
    }
    rb_shelf_close(shelf);
    rb_device_free(device, memory);
    rb_device_close(device);
    return 0;
}

static struct owner start(uint8_t ret_address[RB_SHELF_ADDRESS])
{
    struct owner owner;
    ssize_t got;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    owner.pid = fork();
    if (owner.pid == 0) {
        char name[16];

        snprintf(name, sizeof name, "%d", fds[1]);
        close(fds[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/proc/self/exe", "owner", name, NULL);
        _exit(127);
    }
    close(fds[1]);
    owner.fd = fds[0];
    got = read(owner.fd, ret_address, RB_SHELF_ADDRESS);
    if (got == 0 && getenv("RUBATO_TEST_GPUS")) /* the owner has said why */
        skip();
    assert_int_equal(got, RB_SHELF_ADDRESS);
    return owner;
}

static void tell(const struct owner *owner, enum order what, uint32_t seed)
{
    uint32_t order[2] = {what, seed};

    assert_int_equal(write(owner->fd, order, sizeof order), sizeof order);
    assert_int_equal(read(owner->fd, order, sizeof order), sizeof order);
    assert_int_equal(order[0], 0);
}

static void end(const struct owner *owner, int signal)
{
    int status;

    if (signal)
        kill(owner->pid, signal);
    else
        shutdown(owner->fd, SHUT_WR);
    assert_int_equal(waitpid(owner->pid, &status, 0), owner->pid);
    assert_int_equal(status, signal);
    close(owner->fd);
}

/* ---- The taker --------------------------------------------------------------------------------*/

static int open_device(void **state)
{
    return rb_device_open("cuda", 0, (struct rb_device **)state, NULL);
}

static int close_device(void **state)
{
    rb_device_close(*state);
    return 0;
}

/* Two devices may have no way to each other; and a machine that is being tried may refuse what this
 * test needs. */
static bool has_no_way(const char *why)
{
    return strstr(why, "this GPU cannot reach") ||
           (getenv("RUBATO_TEST_GPUS") && strstr(why, "cannot be taken over"));
}

static struct rb_shelf *find(struct rb_device *device, const uint8_t *address)
{
    struct rb_shelf *shelf = NULL;
    struct rb_why why = {{0}};

    if (rb_shelf_find(device, address, AT + BYTES, &shelf, &why)) {
        if (has_no_way(why.text)) {
            say_none(why.text);
            skip();
        }
        fail_msg("%s", why.text);
    }
    return shelf;
}

static void expect_refused(struct rb_device *device, const void *address, size_t bytes)
{
    struct rb_shelf *shelf = NULL;
    struct rb_why why = {{0}};

    assert_int_equal(rb_shelf_find(device, address, bytes, &shelf, &why), RB_EUNSUPPORTED);
    assert_null(shelf);
    assert_true(why.text[0] != 0);
    assert_int_equal(rb_device_check(device, &why), 0);
}

/* Takes in other pieces than were put. */
static void expect(struct rb_device *device, struct rb_shelf *shelf, uint32_t seed)
{
    uint32_t *memory = rb_device_alloc(device, BYTES);
    const struct iovec pieces[] = {{memory, SECOND * 4}, {memory + SECOND, FIRST * 4}};
    struct rb_why why;

    assert_non_null(memory);
    rb_shelf_take(shelf, AT, pieces, 2);
    assert_int_equal(memory[COUNT - 1], 0); /* the host's side */
    rb_device_pull(device, memory, BYTES);
    assert_int_equal(rb_device_check(device, &why), 0);
    for (uint32_t i = 0; i < COUNT; i++)
        if (memory[i] != number(seed, i))
            fail_msg("%u: %x for %x", i, memory[i], number(seed, i));
    rb_device_free(device, memory);
}

static int count_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(folder))
        n++;
    closedir(folder);
    return n;
}

/* ---- Tests ------------------------------------------------------------------------------------*/

static void what_is_put_is_taken(void **state)
{
    uint8_t address[RB_SHELF_ADDRESS];
    struct owner owner = start(address);
    struct rb_shelf *shelf = find(*state, address);

    for (uint32_t seed = 1; seed < 10; seed++) {
        tell(&owner, PUT, seed);
        expect(*state, shelf, seed);
    }
    rb_shelf_close(shelf);
    end(&owner, 0);
}

static void it_outlives_its_owner(void **state)
{
    uint8_t address[RB_SHELF_ADDRESS];
    struct owner owner = start(address);
    struct rb_shelf *shelf = find(*state, address);

    tell(&owner, PUT, 1);
    tell(&owner, CLOSE, 0);
    expect(*state, shelf, 1);
    expect_refused(*state, address, BYTES);
    rb_shelf_close(shelf);
    end(&owner, 0);

    owner = start(address);
    shelf = find(*state, address);
    tell(&owner, PUT, 1);
    end(&owner, SIGKILL);
    expect(*state, shelf, 1);
    expect_refused(*state, address, BYTES);
    rb_shelf_close(shelf);
}

/* Memory that arrives other than it lies there is noticed before anything is taken. */
static void what_is_read_wrongly_is_refused(void **state)
{
    uint8_t address[RB_SHELF_ADDRESS];
    struct owner owner = start(address);

    rb_shelf_close(find(*state, address));
    tell(&owner, PUT, 1); /* not what the address says */
    expect_refused(*state, address, BYTES);
    end(&owner, 0);
}

/* pid, descriptor, bytes, word: each of them wrong in turn. */
static void what_is_none_is_refused(void **state)
{
    uint8_t address[RB_SHELF_ADDRESS];
    struct owner owner = start(address);
    struct rb_device *core;
    struct rb_shelf *shelf;
    struct rb_why why;

    expect_refused(*state, address, (size_t)1 << 40);
    for (size_t i = 0; i < 4; i++) {
        int64_t wrong[RB_SHELF_ADDRESS / 8];

        memcpy(wrong, address, sizeof wrong);
        wrong[i] = i == 0 ? getpid() : i == 1 ? STDIN_FILENO : wrong[i] * 2 + 4096;
        expect_refused(*state, wrong, BYTES);
    }
    memset(address, 0, sizeof address);
    expect_refused(*state, address, BYTES);
    end(&owner, 0);

    assert_int_equal(rb_device_open("cpu", 0, &core, &why), 0);
    assert_false(rb_device_shelves(core));
    assert_int_equal(rb_shelf_open(core, BYTES, address, &shelf, &why), RB_EUNSUPPORTED);
    expect_refused(core, address, BYTES);
    rb_device_close(core);
}

static void they_may_be_unwanted(void **state)
{
    uint8_t address[RB_SHELF_ADDRESS];
    struct owner owner = start(address);
    struct rb_shelf *shelf;
    struct rb_why why;

    setenv("RUBATO_SHELVES", "", 1);
    expect_refused(*state, address, BYTES);
    assert_int_equal(rb_shelf_open(*state, BYTES, address, &shelf, &why), RB_EUNSUPPORTED);
    unsetenv("RUBATO_SHELVES");
    end(&owner, 0);
}

static void nothing_is_left(void **state)
{
    uint8_t address[RB_SHELF_ADDRESS], unknown[RB_SHELF_ADDRESS] = {0}, own[RB_SHELF_ADDRESS];
    struct owner owner = start(address);
    struct rb_shelf *shelf;
    int before = count_files();

    for (int i = 0; i < 50; i++) {
        rb_shelf_close(find(*state, address));
        expect_refused(*state, unknown, BYTES);
        assert_int_equal(rb_shelf_open(*state, BYTES, own, &shelf, NULL), 0);
        rb_shelf_close(shelf);
    }
    rb_shelf_close(NULL);
    assert_int_equal(count_files(), before);
    end(&owner, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_taken),
        cmocka_unit_test(it_outlives_its_owner),
        cmocka_unit_test(what_is_read_wrongly_is_refused),
        cmocka_unit_test(what_is_none_is_refused),
        cmocka_unit_test(they_may_be_unwanted),
        cmocka_unit_test(nothing_is_left),
    };
    struct rb_why why = {{0}};
    int count;

    if (argc > 1)
        return own(atoi(argv[1]));
    if (rb_device_count("cuda", &count, &why)) {
        fprintf(stderr, "%s\n", why.text);
        return 77;
    }
    return cmocka_run_group_tests(tests, open_device, close_device);
}
