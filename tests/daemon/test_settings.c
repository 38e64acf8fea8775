/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings.h"
#include "base/arena.h"
#include "base/file.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 16 };

static int read_words(struct rb_settings *ret, struct rb_why *why, const char *first, ...)
{
    char *argv[WORDS] = {(char *)"rubatod"};
    int argc = 1;
    va_list args;
    va_start(args, first);
    for (const char *word = first; word && argc < WORDS - 1; word = va_arg(args, const char *))
        argv[argc++] = (char *)word;
    va_end(args);
    return rb_settings_read(argc, argv, 6, ret, why);
}

static void single_node(void **state)
{
    struct rb_settings settings;
    struct rb_why why = {0};
    (void)state;
    assert_int_equal(read_words(&settings, &why, "--single-node", "--state-dir", "/tmp/x//", NULL),
                     RB_OK);
    assert_true(settings.value->single_node);
    assert_string_equal(settings.value->state_dir, "/tmp/x");
    assert_int_equal(settings.value->cpu_devices, 6);
    assert_non_null(settings.value->node);
    assert_null(settings.value->listen);
    rb_settings_done(&settings);
}

static void cluster(void **state)
{
    struct rb_settings settings;
    struct rb_why why = {0};
    (void)state;
    assert_int_equal(read_words(&settings, &why, "--node=n1", "--state-dir=rel", "--cpu-devices=0",
                                "--etcd", "http://a:1,http://b:2", "--etcd", "unix:/c", NULL),
                     RB_OK);
    assert_string_equal(settings.value->node, "n1");
    assert_int_equal(settings.value->state_dir[0], '/');
    assert_int_equal(settings.value->cpu_devices, 0);
    assert_int_equal(settings.value->n_etcd, 3);
    assert_string_equal(settings.value->etcd[1], "http://b:2");
    assert_string_equal(settings.value->listen, "127.0.0.1:0");
    rb_settings_done(&settings);
}

static void refusals(void **state)
{
    static const struct {
        const char *words[7];
        const char *says;
    } cases[] = {
        {{"--single-node"}, "--state-dir"},
        {{"--state-dir", "/x"}, "--single-node"},
        {{"--state-dir", "/x", "--single-node", "--etcd", "http://a"}, "--etcd"},
        {{"--state-dir", "/x", "--single-node", "--what", "1"}, "--what"},
        {{"--state-dir", "/x", "--single-node", "--http", "1"}, "--http: '1' is not ADDRESS:PORT"},
        {{"--state-dir", "/x", "--single-node", "--http", "[::1]:70000"}, "is not ADDRESS:PORT"},
        {{"--state-dir", "/x", "--single-node", "--http", "localhost:1"}, "numeric"},
        {{"--state-dir"}, "--state-dir"},
        {{"--state-dir", "/x", "--single-node", "extra"}, "extra"},
        {{"--state-dir", "/x", "--single-node", "--cpu-devices", "-1"}, "-1"},
        {{"--state-dir", "/x", "--single-node", "--cpu-devices", "4x"}, "4x"},
        {{"--state-dir", "/x", "--single-node", "--node", "a/b"}, "a/b"},
        {{"--state-dir", "/x", "--single-node", "--node", "leader"}, "leader"},
        {{"--state-dir", "/x", "--single-node", "--node=-x"}, "'-x'"},
        {{"--state-dir", "/x", "--single-node", "--node", ".."}, "in front"},
        {{"--config", "/nowhere/at/all.yaml"}, "/nowhere/at/all.yaml"},
        {{"--state-dir", "/x", "--single-node", "--leave-timeout", "soon"}, "soon"},
        {{"--state-dir", "/x", "--single-node", "--notice-command", "curl x"}, "absolute"},
        {{"--state-dir", "/x", "--single-node", "--notice-every", "1s"}, "goes with"},
        {{"--state-dir", "/x", "--etcd", "http://a", "--listen", "0.0.0.0:7"}, "reach this node"},
        {{"--state-dir", "/x", "--single-node", "--tls", "/y"}, "--listen"},
        {{"--state-dir", "/x", "--single-node", "--etcd-tls", "/y"}, "keeps its own"},
        {{"--state-dir", "/x", "--etcd", "https://a,http://b", "--etcd-tls", "/y"}, "http://b"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rb_settings settings;
        struct rb_why why = {0};
        const char *const *w = cases[i].words;
        assert_int_not_equal(read_words(&settings, &why, w[0], w[1], w[2], w[3], w[4], w[5], NULL),
                             RB_OK);
        assert_non_null(strstr(why.text, cases[i].says));
    }
}

static void long_state_dir(void **state)
{
    char path[200] = "/";
    struct rb_settings settings;
    struct rb_why why = {0};
    (void)state;
    memset(path + 1, 'd', 150);
    assert_int_not_equal(read_words(&settings, &why, "--single-node", "--state-dir", path, NULL),
                         RB_OK);
    assert_non_null(strstr(why.text, "longer"));
}

static void file_and_command_line(void **state)
{
    char folder[] = "/tmp/rubato-settings.XXXXXX";
    struct rb_settings settings;
    struct rb_why why = {0};
    (void)state;
    assert_non_null(mkdtemp(folder));
    char *path = rb_format("%s/rubatod.yaml", folder);
    static const char text[] = "stateDir: /s\nnode: f\netcd: [http://a:1, http://b:1]\n"
                               "cpuDevices: 3\nlisten: 10.0.0.7:7\ntls: /t\nhttp: '::1:9'\n";
    assert_int_equal(rb_file_write(path, text, strlen(text), &why), RB_OK);
    assert_int_equal(
        read_words(&settings, &why, "--config", path, "--node", "c", "--etcd", "http://z:1", NULL),
        RB_OK);
    assert_string_equal(settings.value->node, "c"); /* the command line wins */
    assert_int_equal(settings.value->n_etcd, 1);
    assert_string_equal(settings.value->etcd[0], "http://z:1");
    assert_int_equal(settings.value->cpu_devices, 3);
    assert_string_equal(settings.value->listen, "10.0.0.7:7");
    assert_string_equal(settings.value->tls, "/t");
    assert_string_equal(settings.value->http, "::1:9");
    rb_settings_done(&settings);
    static const char wrong[] = "stateDir: /s\nhtttp: 1\n";
    assert_int_equal(rb_file_write(path, wrong, strlen(wrong), &why), RB_OK);
    assert_int_not_equal(read_words(&settings, &why, "--config", path, NULL), RB_OK);
    assert_non_null(strstr(why.text, "htttp"));
    assert_non_null(strstr(why.text, ":2:"));
    free(path);
    rb_file_remove(folder, &why);
}

static void leaving_and_notices(void **state)
{
    struct rb_settings settings;
    struct rb_why why = {0};
    (void)state;
    assert_int_equal(read_words(&settings, &why, "--state-dir", "/s", "--single-node", NULL),
                     RB_OK);
    assert_null(settings.value->notice);
    assert_int_equal(rb_settings_leave_ms(settings.value), 4000);
    rb_settings_done(&settings);
    assert_int_equal(read_words(&settings, &why, "--state-dir", "/s", "--etcd", "http://a",
                                "--leave-timeout", "2m", "--notice-command", "/bin/x -y", NULL),
                     RB_OK);
    assert_int_equal(rb_settings_leave_ms(settings.value), 120000);
    assert_string_equal(settings.value->notice->command, "/bin/x -y");
    assert_string_equal(settings.value->notice->every, "5s");
    rb_settings_done(&settings);
    char folder[] = "/tmp/rubato-settings.XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *path = rb_format("%s/rubatod.yaml", folder);
    static const char text[] = "stateDir: /s\nsingleNode: true\nleaveTimeout: 10s\n"
                               "notice: {command: /bin/x, every: 500ms}\n";
    assert_int_equal(rb_file_write(path, text, strlen(text), &why), RB_OK);
    assert_int_equal(
        read_words(&settings, &why, "--config", path, "--notice-command", "/bin/y", NULL), RB_OK);
    assert_string_equal(settings.value->notice->command, "/bin/y");
    assert_string_equal(settings.value->notice->every, "500ms");
    assert_int_equal(rb_settings_leave_ms(settings.value), 10000);
    rb_settings_done(&settings);
    static const char wrong[] = "stateDir: /s\nsingleNode: true\nnotice: {command: /x, every: 1}\n";
    static const char fast[] =
        "stateDir: /s\nsingleNode: true\nnotice: {command: /x, every: 1ms}\n";
    assert_int_equal(rb_file_write(path, wrong, strlen(wrong), &why), RB_OK);
    assert_int_equal(read_words(&settings, &why, "--config", path, NULL), RB_OK);
    rb_settings_done(&settings);
    assert_int_equal(rb_file_write(path, fast, strlen(fast), &why), RB_OK);
    assert_int_equal(read_words(&settings, &why, "--config", path, NULL), RB_EINVAL);
    assert_non_null(strstr(why.text, "notice.every"));
    free(path);
    rb_file_remove(folder, &why);
}

static void questions(void **state)
{
    struct rb_settings settings;
    struct rb_why why = {0};
    (void)state;
    assert_int_equal(read_words(&settings, &why, "--version", NULL), RB_OK);
    assert_true(settings.version && !settings.value);
    assert_int_equal(read_words(&settings, &why, "-h", NULL), RB_OK);
    assert_true(settings.help && !settings.value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_node),
        cmocka_unit_test(cluster),
        cmocka_unit_test(refusals),
        cmocka_unit_test(long_state_dir),
        cmocka_unit_test(file_and_command_line),
        cmocka_unit_test(leaving_and_notices),
        cmocka_unit_test(questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
