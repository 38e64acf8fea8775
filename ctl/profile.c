/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a training step goes: the program of a microbatch, run here on one core.
 *
 * A model or a job is compiled as for training and run with made-up samples.  The report is one
 * JSON value, the table is made from it. */
#include "base/arena.h"
#include "ctl/human.h"
#include "ctl/page.h"
#include "ctl/timing.h"
#include "ctl/value.h"
#include "ctl/verbs.h"
#include "proto/work.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SLOWEST = 10 };

/* ---- What to run ---- */

static int compile_job(struct rb_session *session, const char *name,
                       struct rb_compiled *ret_compiled, struct rb_why *why)
{
    Rb__Spec *spec = NULL;
    int err = rb_session_spec(session, name, &spec, why);

    if (!err)
        err = rb_compile(spec, rb_device_numeric_class("cpu"), ret_compiled, why);
    if (spec)
        rb__spec__free_unpacked(spec, NULL);
    return err;
}

static bool is_model(const char *word)
{
    size_t n = strlen(word);

    return (n > 5 && strcmp(word + n - 5, ".onnx") == 0) || strchr(word, '/');
}

/* ---- The report: times in ms, counts as they are, rates in 10^9 a second ---- */

static json_t *row_json(const struct rb_profile_row *row)
{
    return json_pack("{s:s,s:i,s:f,s:f,s:f,s:f,s:f,s:f}", "operator", row->name, "calls",
                     (int)row->calls, "ms", row->ns / 1e6, "floorMs", row->floor / 1e6, "flops",
                     row->flops, "bytes", row->bytes, "gflops", row->flops / row->ns, "gbs",
                     row->bytes / row->ns);
}

/* The instructions that lose most against their floors. */
static json_t *slowest(const struct rb_profile *profile, const Rb__Program *program,
                       const struct rb_profile_speed *speed)
{
    size_t n;
    RB_CLEANUP(rb_freep)
    struct rb_profile_loss *losses = rb_profile_losses(profile, speed, 1, &n);
    json_t *list = json_array();

    for (size_t i = 0; i < n && i < SLOWEST; i++) {
        const struct rb_profile_loss *loss = &losses[i];
        struct rb_buffer text = {0};

        rb_work_text(program, loss->instruction, &text);
        json_array_append_new(
            list, json_pack("{s:s%,s:f,s:f}", "instruction", (const char *)text.data, text.size,
                            "ms", loss->ns / 1e6, "floorMs", (loss->ns - loss->lost) / 1e6));
        rb_buffer_done(&text);
    }
    return list;
}

static json_t *report(const struct rb_forward *forward, const struct rb_profile *profile,
                      const struct rb_profile_speed *speed)
{
    const Rb__Program *program = forward->compiled.model->programs[0];
    double ns = 0, flops = 0, bytes = 0, floors = 0;
    json_t *rows = json_array();
    size_t n;
    struct rb_profile_row *row = rb_profile_rows(profile, speed, &n);

    for (size_t i = 0; i < n; i++) {
        ns += row[i].ns;
        flops += row[i].flops;
        bytes += row[i].bytes;
        floors += row[i].floor;
        json_array_append_new(rows, row_json(&row[i]));
    }
    free(row);
    return json_pack("{s:s,s:i,s:i,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:{s:f,s:f},s:o,s:o}", "summary",
                     forward->compiled.summary, "batch", (int)program->batch, "microbatches",
                     (int)(forward->compiled.microbatches ? forward->compiled.microbatches : 1),
                     "numericClass", rb_device_numeric_class("cpu"), "ms", ns / 1e6, "floorMs",
                     floors / 1e6, "flops", flops, "bytes", bytes, "gflops", flops / ns, "memoryMB",
                     (double)program->arena_bytes / 1e6, "peak", "gflops", speed->flops, "gbs",
                     speed->bytes, "operators", rows, "slowest", slowest(profile, program, speed));
}

/* ---- As text ---- */

static void add_number(struct rb_table *table, const char *format, double x)
{
    RB_CLEANUP(rb_freep) char *text = x > 0 ? rb_format(format, x) : NULL;

    rb_table_add(table, text ? text : "");
}

static void add_row(struct rb_table *table, const json_t *row, double whole, double peak)
{
    double ms = rb_value_real(row, "ms", 0), gflops = rb_value_real(row, "gflops", 0);
    double floor = rb_value_real(row, "floorMs", 0);

    rb_table_add(table, rb_value_text(row, "operator", "all"));
    add_number(table, "%.0f", (double)rb_value_integer(row, "calls", 0));
    add_number(table, "%.3f", ms);
    add_number(table, "%.1f", 100 * ms / whole);
    add_number(table, "%.1f", gflops);
    add_number(table, "%.0f", 100 * gflops / peak);
    add_number(table, "%.1f", rb_value_real(row, "bytes", 0) / 1e6);
    add_number(table, "%.1f", rb_value_real(row, "bytes", 0) / ms / 1e6);
    add_number(table, "%.1f", floor > 0 ? ms / floor : 0);
}

static void print_page(const struct rb_session *session, const json_t *report)
{
    static const char *const head[] = {"OPERATOR", "CALLS", "MS",   "%",    "GFLOP/S",
                                       "% PEAK",   "MB",    "GB/S", "TIMES"};
    struct rb_table table = {.columns = RB_COUNT(head)}, page = RB_PAGE;
    const json_t *peak = json_object_get(report, "peak"), *row;
    double whole = rb_value_real(report, "ms", 0), gflops = rb_value_real(peak, "gflops", 1);
    struct rb_buffer text = {0};
    size_t i;

    rb_page_add(&page, "model", "%s", rb_value_text(report, "summary", "?"));
    rb_page_add(&page, "profiled", "forward and backward of %" PRId64 " samples, one core",
                rb_value_integer(report, "batch", 0));
    rb_page_add(&page, "this core", "%.1f GFLOP/s in products, %.1f GB/s in copies", gflops,
                rb_value_real(peak, "gbs", 0));
    rb_page_add(&page, "activations", "%.1f MB", rb_value_real(report, "memoryMB", 0));
    rb_page_print(session, &page);
    for (i = 0; i < RB_COUNT(head); i++)
        rb_table_add(&table, head[i]);
    json_array_foreach(json_object_get(report, "operators"), i, row)
    {
        add_row(&table, row, whole, gflops);
    }
    add_row(&table, report, whole, gflops);
    rb_buffer_text(&text, "\n");
    rb_table_print(&table, "lrrrrrrrr", &text);
    rb_table_done(&table);
    rb_buffer_text(&text, "\nmost over their floors (TIMES: how often the larger of products and "
                          "bytes at this core's speed):\n");
    json_array_foreach(json_object_get(report, "slowest"), i, row)
    {
        rb_buffer_format(&text, "%9.3f ms, floor %.3f: %s\n", rb_value_real(row, "ms", 0),
                         rb_value_real(row, "floorMs", 0), rb_value_text(row, "instruction", "?"));
    }
    rb_session_put(session, &text);
}

/* ---- The verb ---- */

static int run(struct rb_device *device, struct rb_forward *forward, json_t **ret_report,
               struct rb_why *why)
{
    struct rb_profile_speed speed;
    struct rb_profile *profile;
    int err = rb_timing_take(device, forward, false, &speed, &profile, why);

    if (err)
        return err;
    *ret_report = report(forward, profile, &speed);
    rb_profile_free(profile);
    return 0;
}

int rb_profile(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *word = arguments->word[0], *asked = rb_arguments_value(arguments, "batch");
    struct rb_forward forward = {0};
    struct rb_device *device = NULL;
    json_t *report = NULL;
    struct rb_why why = {0};
    int64_t batch = 0;
    int err;

    if (asked && !is_model(word))
        return rb_session_usage(session, "--batch goes with a model; a job has its own");
    if (asked && rb_arguments_count(asked, 1, INT32_MAX, &batch, &why))
        return rb_session_usage(session, "--batch %s", why.text);
    err = is_model(word) ? rb_compile_training(word, batch, &forward.compiled, &why)
                         : compile_job(session, word, &forward.compiled, &why);
    if (!err)
        err = rb_device_open("cpu", 0, &device, &why);
    if (!err)
        err = run(device, &forward, &report, &why);
    if (!err && session->format == RB_FORMAT_TABLE)
        print_page(session, report);
    else if (!err)
        rb_session_print(session, report);
    if (device) {
        rb_forward_done(device, &forward);
        rb_device_close(device);
    } else {
        rb_compiled_done(&forward.compiled);
    }
    json_decref(report);
    return err ? rb_session_fail(session, err, &why) : RB_EXIT_DONE;
}
