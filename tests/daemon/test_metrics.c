/* SPDX-License-Identifier: Apache-2.0 */
/* The text of /metrics and of /readyz: from facts alone. */
#include "base/arena.h"
#include "daemon/agent/devices.h"
#include "daemon/certificates.h"
#include "daemon/facts/mirror.h"
#include "daemon/http/metrics.h"
#include "daemon/http/readiness.h"
#include "daemon/http/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NOW = 100000 };

/* ---- Facts ----------------------------------------------------------------------------------- */

static void put(struct rb_mirror *mirror, const char *key, const char *value)
{
    static int64_t revision;
    struct rb_why why = {0};

    revision++;
    if (rb_mirror_put(mirror, key, value, strlen(value), revision, revision, 0, &why))
        fail_msg("%s: %s", key, why.text);
}

static void put_job(struct rb_mirror *mirror, const char *id, const char *name, const char *state)
{
    RB_CLEANUP(rb_freep)
    char *job =
        rb_format("{\"name\":\"%s\",\"id\":\"%s\",\"created\":1,\"spec\":{},\"model\":\"m\","
                  "\"weights\":\"w\",\"node\":\"a\",\"steps\":500,\"microbatches\":8,"
                  "\"numericClass\":\"plain\"}",
                  name, id);
    RB_CLEANUP(rb_freep) char *job_key = rb_format("jobs/%s/job", id);
    RB_CLEANUP(rb_freep) char *wish_key = rb_format("jobs/%s/wish", id);
    RB_CLEANUP(rb_freep) char *state_key = rb_format("jobs/%s/state", id);

    put(mirror, job_key, job);
    put(mirror, wish_key, "{\"want\":3}");
    put(mirror, state_key, state);
}

/* Job gpt, which trains on two devices of node a, has a checkpoint and a receipt. */
static void put_running(struct rb_mirror *mirror, const char *loss)
{
    RB_CLEANUP(rb_freep)
    char *progress = rb_format("{\"configuration\":2,\"step\":120,\"loss\":%s,\"samples\":1440,"
                               "\"throughput\":37.5,\"time\":99500,\"evalLoss\":2.25,"
                               "\"evalStep\":100}",
                               loss);

    put_job(mirror, "j1", "gpt", "{\"phase\":\"Running\",\"active\":2,\"restarts\":[50000]}");
    put(mirror, "jobs/j1/configurations/00000002",
        "{\"number\":2,\"state\":\"ACTIVE\",\"cause\":\"grow\",\"asked\":1,\"created\":1,"
        "\"members\":[{\"node\":\"a\",\"device\":0},{\"node\":\"a\",\"device\":1}],\"receipt\":"
        "{\"from\":1,\"to\":2,\"configuration\":2,\"step\":30,\"stallMs\":12.5,\"readyMs\":400,"
        "\"bytesMoved\":9,\"stepsLost\":0,\"samplesRepeated\":0,\"samplesSkipped\":0}}");
    put(mirror, "jobs/j1/progress", progress);
    put(mirror, "jobs/j1/checkpoints/000000000100",
        "{\"step\":100,\"path\":\"/c\",\"node\":\"a\",\"time\":90000,\"bytes\":4096}");
    put(mirror, "jobs/j1/workers/a:0", "{\"worker\":\"w0\",\"state\":\"TRAINING\"}");
    put(mirror, "jobs/j1/workers/a:1", "{\"worker\":\"w1\",\"state\":\"DEAD\"}");
}

static char *text_of(struct rb_mirror *mirror, bool leads)
{
    Rb__Device at[3] = {RB__DEVICE__INIT, RB__DEVICE__INIT, RB__DEVICE__INIT};
    Rb__Device *list[] = {&at[0], &at[1], &at[2]};
    struct rb_devices devices = {.at = list, .n = 3};
    const struct rb_certificate certificate = {"--tls", 1800000000};
    struct rb_buffer out = {0};

    at[1].index = 1;
    at[2].index = 2000;
    at[0].kind = at[1].kind = (char *)"cpu";
    at[2].kind = (char *)"cuda";
    at[2].bus = (char *)"0000:01:00.0";
    at[2].sick = (char *)"fell off the bus";
    at[2].has_used = true;
    at[2].used = 1048576;
    rb_metrics_write(&(struct rb_metrics){.version = "1.2",
                                          .node = "a",
                                          .ready = true,
                                          .connected = true,
                                          .leads = leads,
                                          .workers = 2,
                                          .devices = &devices,
                                          .certificates = &certificate,
                                          .n_certificates = 1,
                                          .facts = rb_mirror_facts(mirror),
                                          .now = NOW},
                     &out);
    return rb_buffer_take(&out);
}

static void has(const char *text, const char *line)
{
    RB_CLEANUP(rb_freep) char *whole = rb_format("\n%s\n", line);

    if (!strstr(text, whole))
        fail_msg("'%s' is missing in:\n%s", line, text);
}

static void has_not(const char *text, const char *words)
{
    if (strstr(text, words))
        fail_msg("'%s' is in:\n%s", words, text);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void samples_as_text(void **unused)
{
    const struct rb_text_label labels[] = {
        {"a", "x\\y\"z\nw"}, {"gone", NULL}, {"b", "caf\xc3\xa9"}, {0}};
    const struct rb_text_label none[] = {{"gone", NULL}, {0}};
    struct rb_buffer out = {0};

    (void)unused;
    rb_text_family(&out, "m", "gauge", "Help.");
    rb_text_sample(&out, "m", labels, 0.1);
    rb_text_sample(&out, "m", none, (double)NAN);
    rb_text_sample(&out, "m", NULL, (double)INFINITY);
    rb_text_sample(&out, "m", NULL, -(double)INFINITY);
    rb_text_sample(&out, "m", NULL, 1e15 - 1);
    rb_text_sample(&out, "m", NULL, 1.0 / 3);
    assert_string_equal(out.data, "# HELP m Help.\n# TYPE m gauge\n"
                                  "m{a=\"x\\\\y\\\"z\\nw\",b=\"caf\xc3\xa9\"} 0.1\n"
                                  "m NaN\nm +Inf\nm -Inf\nm 999999999999999\n"
                                  "m 0.33333333333333331\n");
    rb_buffer_done(&out);
}

static void certificates_by_age(void **unused)
{
    enum { DAY = 24 * 3600 };
    const int64_t long_life = 825LL * DAY, short_life = DAY;

    (void)unused;
    assert_int_equal(rb_certificate_age(0, long_life, 0), RB_CERTIFICATE_GOOD);
    assert_int_equal(rb_certificate_age(0, long_life, long_life - 15 * DAY), RB_CERTIFICATE_GOOD);
    assert_int_equal(rb_certificate_age(0, long_life, long_life - 13 * DAY), RB_CERTIFICATE_LATE);
    assert_int_equal(rb_certificate_age(0, long_life, long_life), RB_CERTIFICATE_EXPIRED);
    assert_int_equal(rb_certificate_age(0, short_life, short_life - 3 * 3600), RB_CERTIFICATE_GOOD);
    assert_int_equal(rb_certificate_age(0, short_life, short_life - 2 * 3600), RB_CERTIFICATE_LATE);
}

static void no_job(void **unused)
{
    struct rb_mirror *mirror = rb_mirror_new();
    char *text = text_of(mirror, true);

    (void)unused;
    has(text, "rubato_build_info{node=\"a\",version=\"1.2\"} 1");
    has(text, "rubato_workers 2");
    has(text, "rubato_certificate_expires_timestamp_seconds{use=\"tls\"} 1800000000");
    has(text, "rubato_leader 1");
    has(text, "rubato_node_devices{kind=\"cpu\",state=\"free\",health=\"good\"} 2");
    has(text, "rubato_node_devices{kind=\"cuda\",state=\"free\",health=\"sick\"} 1");
    has(text, "rubato_device_healthy{node=\"a\",device=\"2000\",bus=\"0000:01:00.0\"} 0");
    has(text, "rubato_device_memory_used_bytes{node=\"a\",device=\"2000\",bus=\"0000:01:00.0\"} "
              "1048576");
    has(text, "rubato_jobs{phase=\"Running\"} 0");
    has_not(text, "train_job");
    has_not(text, "rubato_loss"); /* no head without a sample */
    free(text);
    rb_mirror_free(mirror);
}

static void a_job_that_trains(void **unused)
{
    struct rb_mirror *mirror = rb_mirror_new();

    (void)unused;
    put_running(mirror, "1.5");
    char *text = text_of(mirror, true);
    has(text, "rubato_jobs{phase=\"Running\"} 1");
    has(text, "rubato_job_state{train_job=\"gpt\",state=\"Running\"} 1");
    has(text, "rubato_job_state{train_job=\"gpt\",state=\"Pending\"} 0");
    has(text, "rubato_step{train_job=\"gpt\"} 120");
    has(text, "rubato_steps_wanted{train_job=\"gpt\"} 500");
    has(text, "rubato_last_step_timestamp_seconds{train_job=\"gpt\"} 99.5");
    has(text, "# TYPE rubato_loss gauge\nrubato_loss{train_job=\"gpt\",split=\"train\"} 1.5\n"
              "rubato_loss{train_job=\"gpt\",split=\"eval\"} 2.25");
    has(text, "rubato_samples_per_second{train_job=\"gpt\"} 37.5");
    has(text, "rubato_data_cursor_samples{train_job=\"gpt\"} 1440");
    has(text, "rubato_devices{train_job=\"gpt\"} 2");
    has(text, "rubato_devices_wanted{train_job=\"gpt\"} 3");
    has(text, "rubato_configuration{train_job=\"gpt\"} 2");
    has(text, "rubato_restarts{train_job=\"gpt\"} 1");
    has(text, "rubato_last_reconfigure_stall_seconds{train_job=\"gpt\"} 0.0125");
    has(text, "rubato_checkpoint_step{train_job=\"gpt\"} 100");
    has(text, "rubato_checkpoint_age_seconds{train_job=\"gpt\"} 10");
    has(text, "rubato_checkpoint_bytes{train_job=\"gpt\"} 4096");
    has(text, "rubato_checkpoint_failed{train_job=\"gpt\"} 0");
    has(text, "rubato_node_devices{kind=\"cpu\",state=\"busy\",health=\"good\"} 1");
    has(text, "rubato_node_devices{kind=\"cpu\",state=\"free\",health=\"good\"} 1");
    free(text);
    put(mirror, "events/1",
        "{\"time\":89000,\"jobId\":\"j1\",\"kind\":\"checkpoint-failed\",\"text\":\"full\"}");
    text = text_of(mirror, true); /* a checkpoint was written after it */
    has(text, "rubato_checkpoint_failed{train_job=\"gpt\"} 0");
    free(text);
    put(mirror, "events/2",
        "{\"time\":91000,\"jobId\":\"j1\",\"kind\":\"checkpoint-failed\",\"text\":\"full\"}");
    text = text_of(mirror, true);
    has(text, "rubato_checkpoint_failed{train_job=\"gpt\"} 1");
    free(text);
    text = text_of(mirror, false); /* another node leads, and reports the jobs */
    has(text, "rubato_leader 0");
    has_not(text, "train_job");
    has_not(text, "rubato_jobs");
    free(text);
    rb_mirror_free(mirror);
}

static void a_loss_that_is_none(void **unused)
{
    struct rb_mirror *mirror = rb_mirror_new();

    (void)unused;
    put_running(mirror, "\"nan\"");
    char *text = text_of(mirror, true);
    has(text, "rubato_loss{train_job=\"gpt\",split=\"train\"} NaN");
    free(text);
    put_running(mirror, "\"inf\"");
    text = text_of(mirror, true);
    has(text, "rubato_loss{train_job=\"gpt\",split=\"train\"} +Inf");
    free(text);
    rb_mirror_free(mirror);
}

/* Each family is named once, whatever the number of jobs. */
static void several_jobs(void **unused)
{
    struct rb_mirror *mirror = rb_mirror_new();

    (void)unused;
    put_running(mirror, "1.5");
    put_job(mirror, "j2", "mlp", "{\"phase\":\"Pending\"}");
    put_job(mirror, "j3", "over", "{\"phase\":\"Succeeded\",\"finished\":5}");
    put_job(mirror, "j4", "gone", "{\"phase\":\"Running\"}");
    put(mirror, "jobs/j4/wish", "{\"want\":1,\"deleted\":true}");
    char *text = text_of(mirror, true);
    has(text, "rubato_step{train_job=\"gpt\"} 120\nrubato_step{train_job=\"mlp\"} 0");
    has(text, "rubato_devices{train_job=\"mlp\"} 0");
    has(text, "rubato_job_state{train_job=\"mlp\",state=\"Pending\"} 1");
    has(text, "rubato_jobs{phase=\"Running\"} 1");
    has(text, "rubato_jobs{phase=\"Succeeded\"} 1");
    has_not(text, "\"over\"");
    has_not(text, "\"gone\"");
    has_not(text, "rubato_loss{train_job=\"mlp\""); /* mlp has reported nothing */
    has_not(text, "rubato_checkpoint_age_seconds{train_job=\"mlp\"");
    assert_null(strstr(strstr(text, "# TYPE rubato_step ") + 1, "# TYPE rubato_step "));
    free(text);
    rb_mirror_free(mirror);
}

static void jobs_of_one_name(void **unused)
{
    struct rb_mirror *mirror = rb_mirror_new();

    (void)unused;
    put_job(mirror, "j1", "a\\\"b", "{\"phase\":\"Pending\"}");
    put_job(mirror, "j2", "a\\\"b", "{\"phase\":\"Pending\"}");
    put_job(mirror, "j3", "a\\\"b", "{\"phase\":\"Failed\"}"); /* does not count */
    char *text = text_of(mirror, true);
    has(text, "rubato_step{train_job=\"a\\\"b\",id=\"j1\"} 0");
    has(text, "rubato_step{train_job=\"a\\\"b\",id=\"j2\"} 0");
    has_not(text, "j3");
    free(text);
    rb_mirror_free(mirror);
}

static void says(const struct rb_readiness *seen, bool ready, const char *words)
{
    struct rb_buffer out = {0};

    assert_int_equal(rb_readiness_say(seen, &out), ready);
    assert_string_equal(out.data, words);
    rb_buffer_done(&out);
}

static void readiness(void **unused)
{
    struct rb_readiness seen = {0};

    (void)unused;
    says(&seen, false,
         "etcd has not been read yet\nthis node is not registered in etcd\n"
         "no coordinator is known\n");
    seen =
        (struct rb_readiness){.synced = true, .connected = true, .registered = true, .leader = "b"};
    says(&seen, true, "ok\n");
    seen.connected = false;
    says(&seen, false, "etcd does not answer\n");
    seen.connected = seen.leaving = true;
    says(&seen, false, "leaving\n");
    seen.leaving = false;
    seen.leader = NULL;
    says(&seen, false, "no coordinator is known\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_as_text),
        cmocka_unit_test(certificates_by_age),
        cmocka_unit_test(no_job),
        cmocka_unit_test(a_job_that_trains),
        cmocka_unit_test(a_loss_that_is_none),
        cmocka_unit_test(several_jobs),
        cmocka_unit_test(jobs_of_one_name),
        cmocka_unit_test(readiness),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
