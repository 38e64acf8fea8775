/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a training step goes: the program of a microbatch, run here on one device.
 *
 * A model or a job is compiled as for training and run with made-up samples.  The report is one
 * JSON value, the table is made from it. */
#include "base/arena.h"
#include "ctl/human.h"
#include "ctl/page.h"
#include "ctl/timing.h"
#include "ctl/value.h"
#include "ctl/verbs.h"
#include "graph/onnx/onnx.h"
#include "plan/compile/compile.h"
#include "proto/work.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SLOWEST = 10 };

/* ---- What to run ---- */

/* Compile the job for a device of the kind that it trains on. */
static int compile_job(struct rb_session *session, const char *name,
                       struct rb_timing_place *ret_place, struct rb_compiled *ret_compiled,
                       struct rb_why *why)
{
    RB_CLEANUP(rb_freep) char *class = NULL;
    Rb__Spec *spec = NULL;
    int err = rb_session_spec(session, name, &spec, &class, why);

    if (!err)
        err = rb_timing_find(class, ret_place, why);
    if (!err)
        err = rb_compile(spec, ret_place->numeric_class, ret_compiled, why);
    if (spec)
        rb__spec__free_unpacked(spec, NULL);
    return err;
}

/* Compile a model alone: for a core, with one sample where no number is given. */
static int compile_model(const char *path, struct rb_import_options *options,
                         struct rb_timing_place *ret_place, struct rb_compiled *ret_compiled,
                         struct rb_why *why)
{
    struct rb_onnx_info info;
    struct rb_onnx *onnx = NULL;
    int err = rb_timing_first("cpu", ret_place, why);

    if (!err)
        err = rb_onnx_open(path, 0, &onnx, why);
    if (!err)
        err = rb_onnx_info(onnx, &info, why);
    if (!err && options->batch == 0 && info.fixed_batch <= 0)
        options->batch = 1;
    if (!err)
        err = rb_compile_bind(onnx, options, why);
    if (!err)
        err = rb_compile_training(onnx, path, options, ret_compiled, why);
    rb_onnx_close(onnx);
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

static json_t *report(const struct rb_timing_place *place, const struct rb_compiled *compiled,
                      const struct rb_profile *profile, const struct rb_profile_speed *speed)
{
    const Rb__Program *program = compiled->model->programs[0];
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
    return json_pack("{s:s,s:i,s:i,s:s,s:s,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:{s:f,s:f},s:o,s:o}",
                     "summary", compiled->summary, "batch", (int)program->batch, "microbatches",
                     (int)(compiled->microbatches ? compiled->microbatches : 1), "kind",
                     place->kind, "device", place->name, "numericClass", place->numeric_class, "ms",
                     ns / 1e6, "floorMs", floors / 1e6, "flops", flops, "bytes", bytes, "gflops",
                     flops / ns, "memoryMB", (double)program->arena_bytes / 1e6, "peak", "gflops",
                     speed->flops, "gbs", speed->bytes, "operators", rows, "slowest",
                     slowest(profile, program, speed));
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
    const char *device = rb_value_text(report, "device", "");
    int64_t free_size = rb_value_integer(report, "freeSize", 0);
    int64_t batch = rb_value_integer(report, "batch", 0);
    struct rb_buffer text = {0};
    size_t i;

    rb_page_add(&page, "model", "%s", rb_value_text(report, "summary", "?"));
    rb_page_add(&page, "profiled", "forward and backward of %" PRId64 " sample%s, %s", batch,
                batch == 1 ? "" : "s", *device ? device : "one core");
    if (free_size)
        rb_page_add(&page, "free axes", "%" PRId64 " long (--seq)", free_size);
    rb_page_add(&page, *device ? "this device" : "this core",
                "%.1f GFLOP/s in products, %.1f GB/s in copies", gflops,
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
                          "bytes at this device's speed):\n");
    json_array_foreach(json_object_get(report, "slowest"), i, row)
    {
        rb_buffer_format(&text, "%9.3f ms, floor %.3f: %s\n", rb_value_real(row, "ms", 0),
                         rb_value_real(row, "floorMs", 0), rb_value_text(row, "instruction", "?"));
    }
    rb_session_put(session, &text);
}

/* ---- The verb ---- */

static int run(const struct rb_timing_place *place, const struct rb_compiled *compiled,
               json_t **ret_report, struct rb_why *why)
{
    struct rb_timing_taken taken;
    int err = rb_timing_take(place, compiled->model, false, &taken, why);

    if (err)
        return err;
    *ret_report = report(place, compiled, taken.profile, &taken.speed);
    rb_profile_free(taken.profile);
    return 0;
}

/* The requested sizes; RB_EXIT_USAGE and a sentence on stderr where they are not valid. */
static int read_sizes(struct rb_session *session, const struct rb_arguments *arguments,
                      struct rb_import_options *ret_options)
{
    const char *batch = rb_arguments_value(arguments, "batch");
    const char *size = rb_arguments_value(arguments, "seq");
    struct rb_why why = {0};

    if ((batch || size) && !is_model(arguments->word[0]))
        return rb_session_usage(session, "--%s goes with a model; a job has its own",
                                batch ? "batch" : "seq");
    if (batch && rb_arguments_count(batch, 1, INT32_MAX, &ret_options->batch, &why))
        return rb_session_usage(session, "--batch %s", why.text);
    if (size && rb_arguments_count(size, 1, INT32_MAX, &ret_options->free_size, &why))
        return rb_session_usage(session, "--seq %s", why.text);
    return 0;
}

int rb_profile(struct rb_session *session, const struct rb_arguments *arguments)
{
    const char *word = arguments->word[0];
    struct rb_import_options options = {.train = true};
    struct rb_compiled compiled = {0};
    struct rb_timing_place place;
    json_t *report = NULL;
    struct rb_why why = {0};
    int err = read_sizes(session, arguments, &options);

    if (err)
        return err;
    err = is_model(word) ? compile_model(word, &options, &place, &compiled, &why)
                         : compile_job(session, word, &place, &compiled, &why);
    if (!err)
        err = run(&place, &compiled, &report, &why);
    if (!err && options.free_size)
        json_object_set_new(report, "freeSize", json_integer(options.free_size));
    if (!err && session->format == RB_FORMAT_TABLE)
        print_page(session, report);
    else if (!err)
        rb_session_print(session, report);
    rb_compiled_done(&compiled);
    json_decref(report);
    return err ? rb_session_fail(session, err, &why) : RB_EXIT_DONE;
}
