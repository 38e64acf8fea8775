/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/differs.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4, VALUE_MOST = 48 };

/* A setting, where the digested JSON has it, and how it is called in a job file. */
struct setting {
    const char *part; /* NULL: at the top */
    const char *key;
    const char *name;
    const char *contents; /* what is said instead of digests, which tell a reader nothing */
    const ProtobufCEnumDescriptor *words;
    const char *goes_with; /* differs where this one of the same part does */
    const char *unset;     /* what it is then; NULL: nothing */
};

static const struct setting settings[] = {
    {"model", "onnx", "model.onnx", "the model (model.onnx) is another"},
    {"model", "weights", "model.weights", "the weights to start from are others", NULL, "onnx"},
    {"model", "freeze", "model.freeze"},
    {"model", "buffers", "model.buffers"},
    {"loss", "type", "loss.type"},
    {"loss", "ignoreIndex", "loss.ignoreIndex"},
    {"loss", "labelSmoothing", "loss.labelSmoothing"},
    {"data", "path", "data.train.path"},
    {"data", "targets", "data.train.targets"},
    {"data", "inputs", "data.train.inputs"},
    {"data", "format", "data.train.format"},
    {"data", "seqLen", "data.train.seqLen"},
    {"data", "samples", "the number of samples", NULL, NULL, "seqLen"},
    {"data", "content", "data.train", "the data hold something else", NULL, "path"},
    {"train", "seed", "train.seed"},
    {"train", "globalBatch", "train.globalBatch"},
    {"train", "microBatch", "train.microBatch"},
    {"train", "precision", "train.precision"},
    {"train", "optimizer", "train.optimizer.type", NULL, &rb__optimizer__kind__descriptor},
    {"train", "lr", "train.optimizer.lr"},
    {"train", "beta1", "the first of train.optimizer.betas"},
    {"train", "beta2", "the second of train.optimizer.betas"},
    {"train", "eps", "train.optimizer.eps"},
    {"train", "weightDecay", "train.optimizer.weightDecay"},
    {"train", "decay", "train.optimizer.decay"},
    {"train", "momentum", "train.optimizer.momentum"},
    {"train", "nesterov", "train.optimizer.nesterov"},
    {"train", "schedule", "train.schedule.type", NULL, &rb__optimizer__schedule__descriptor},
    {"train", "warmup", "train.schedule.warmup"},
    {"train", "minRatio", "train.schedule.minRatio"},
    {"train", "steps", "the number of steps", NULL, NULL, "schedule"},
    {"train", "clipNorm", "train.clipNorm"},
    {"train", "onNonFinite", "train.onNonFinite.action"},
    {"train", "limit", "train.onNonFinite.limit"},
    {NULL, "hypergraph", "parallel.hypergraph"},
    {NULL, "cut", "parallel.cut", .unset = "words"},
    {"pipeline", "schedule", "parallel.schedule"},
    {"pipeline", "stages", "parallel.pipeline"},
    {"pipeline", "lap", "the number of steps in a lap", NULL, NULL, "stages"},
    {"pipeline", "stops", "where laps end", NULL, NULL, "lap"},
};

static const json_t *value_of(const json_t *all, const struct setting *setting, const char *key)
{
    const json_t *part = setting->part ? json_object_get(all, setting->part) : all;
    const json_t *value = json_object_get(part, key);

    return json_is_null(value) ? NULL : value;
}

static bool differs(const json_t *there, const json_t *here, const struct setting *setting,
                    const char *key)
{
    const json_t *a = value_of(there, setting, key), *b = value_of(here, setting, key);

    return a && b ? !json_equal(a, b) : a != b;
}

/* The end of a long text, in whole characters, tells more than its beginning: paths. */
static void add_text(struct rb_buffer *out, const char *text)
{
    size_t size = strlen(text);
    const char *from = size > VALUE_MOST ? text + size - VALUE_MOST : text;

    while (from > text && ((unsigned char)*from & 0xc0) == 0x80)
        from++;
    rb_buffer_format(out, "%s%s", from > text ? "..." : "", from);
}

static void add_value(struct rb_buffer *out, const json_t *value, const struct setting *setting)
{
    const ProtobufCEnumValue *word =
        setting->words && json_is_integer(value)
            ? protobuf_c_enum_descriptor_get_value(setting->words, (int)json_integer_value(value))
            : NULL;
    RB_CLEANUP(rb_freep) char *text = NULL;

    if (word) {
        text = rb_string(word->name);
        for (char *at = text; *at; at++)
            *at = (char)tolower((unsigned char)*at);
    } else if (json_is_string(value)) {
        text = rb_string(json_string_value(value));
    } else if (json_is_real(value)) {
        text = rb_format("%.9g", json_real_value(value));
    } else if (value) {
        text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    }
    add_text(out, text ? text : setting->unset ? setting->unset : "unset");
}

static void add_setting(struct rb_buffer *out, const json_t *there, const json_t *here,
                        const struct setting *setting)
{
    rb_buffer_text(out, out->size ? ", " : "");
    if (setting->contents) {
        rb_buffer_text(out, setting->contents);
        return;
    }
    rb_buffer_format(out, "%s is ", setting->name);
    add_value(out, value_of(there, setting, setting->key), setting);
    rb_buffer_text(out, " there and ");
    add_value(out, value_of(here, setting, setting->key), setting);
    rb_buffer_text(out, " here");
}

static void compare(struct rb_buffer *out, const json_t *there, const json_t *here)
{
    size_t n = 0;

    for (size_t i = 0; i < RB_COUNT(settings); i++) {
        const struct setting *each = &settings[i];

        if (!differs(there, here, each, each->key) ||
            (each->goes_with && differs(there, here, each, each->goes_with)))
            continue;
        if (n++ < MOST)
            add_setting(out, there, here, each);
    }
    if (n > MOST)
        rb_buffer_format(out, ", and %zu more", n - MOST);
}

/* What a manifest has beside its settings. */
static void compare_counters(struct rb_buffer *out, const json_t *manifest, const Rb__Model *model)
{
    json_int_t step = json_integer_value(json_object_get(manifest, "step"));
    json_int_t samples = json_integer_value(json_object_get(manifest, "samples"));
    const json_t *seed = json_object_get(manifest, "seed");

    if (json_is_integer(seed) && (uint64_t)json_integer_value(seed) != model->seed)
        rb_buffer_format(out, "train.seed is %" PRIu64 " there and %" PRIu64 " here",
                         (uint64_t)json_integer_value(seed), model->seed);
    if (step > 0 && samples > 0 && samples / step != model->global_batch)
        rb_buffer_format(out, "%strain.globalBatch is %lld there and %lld here",
                         out->size ? ", " : "", (long long)(samples / step),
                         (long long)model->global_batch);
}

char *rb_differs_say(const json_t *manifest, const Rb__Model *model)
{
    const char *text = json_string_value(json_object_get(manifest, "settings"));
    json_t *there = text ? json_loads(text, 0, NULL) : NULL;
    json_t *here = model->settings ? json_loads(model->settings, 0, NULL) : NULL;
    struct rb_buffer out = {0};

    if (json_is_object(there) && json_is_object(here))
        compare(&out, there, here);
    else
        compare_counters(&out, manifest, model);
    if (!out.size)
        rb_buffer_text(&out, "its model, data or training settings differ");
    json_decref(there);
    json_decref(here);
    return rb_buffer_take(&out);
}
