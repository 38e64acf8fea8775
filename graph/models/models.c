/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/models/models.h"

#include "base/buffer.h"
#include "graph/models/kinds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct rb_models_kind *const kinds[] = {&rb_models_gpt, &rb_models_mlp,
                                                     &rb_models_cnn};

static const struct rb_models_kind *find_kind(const char *name)
{
    for (size_t i = 0; i < RB_COUNT(kinds); i++)
        if (!strcmp(kinds[i]->name, name))
            return kinds[i];
    return NULL;
}

static int count_settings(const struct rb_models_kind *kind)
{
    int n = 0;

    while (n < RB_MODELS_SETTINGS && kind->settings[n].key)
        n++;
    return n;
}

static int unknown_key(const struct rb_models_kind *kind, const char *text, struct rb_why *why)
{
    struct rb_buffer known = {0};
    int err;

    for (int i = 0; i < count_settings(kind); i++)
        rb_buffer_format(&known, " %s", kind->settings[i].key);
    err = rb_why_set(why, RB_EINVAL, "'%.60s' is no setting of %s; key=value with one of:%s", text,
                     kind->name, known.data);
    rb_buffer_done(&known);
    return err;
}

static int read_setting(const struct rb_models_kind *kind, const char *text, double *values,
                        struct rb_why *why)
{
    const char *equals = strchr(text, '=');
    int i = 0, n = count_settings(kind);
    size_t length = equals ? (size_t)(equals - text) : 0;
    const struct rb_models_setting *setting;
    char *end;
    double value;

    while (i < n && (strlen(kind->settings[i].key) != length ||
                     strncmp(kind->settings[i].key, text, length) != 0))
        i++;
    if (!equals || i == n)
        return unknown_key(kind, text, why);
    setting = &kind->settings[i];
    value = strtod(equals + 1, &end);
    if (end == equals + 1 || *end || !(value >= setting->least && value <= setting->most) ||
        (!setting->real && value != floor(value)))
        return rb_why_set(why, RB_EINVAL, "%s: '%.40s' is not %s from %.10g to %.10g", setting->key,
                          equals + 1, setting->real ? "a number" : "an integer", setting->least,
                          setting->most);
    values[i] = value;
    return 0;
}

int rb_models_new(const char *kind_name, const char *const *settings, int n,
                  struct rb_buffer *ret_onnx, struct rb_why *why)
{
    const struct rb_models_kind *kind = find_kind(kind_name);
    double values[RB_MODELS_SETTINGS];
    struct rb_writer writer;
    int seed, err = 0;

    if (!kind)
        return rb_why_set(why, RB_EINVAL, "'%.40s' is no kind of model; known are gpt, mlp, cnn",
                          kind_name);
    seed = count_settings(kind) - 1; /* always the last */
    for (int i = 0; i <= seed; i++)
        values[i] = kind->settings[i].otherwise;
    for (int i = 0; !err && i < n; i++)
        err = read_setting(kind, settings[i], values, why);
    if (!err && kind->check)
        err = kind->check(values, why);
    if (!err && kind->parameters(values) > INT32_MAX / sizeof(float) - (1 << 18))
        err = rb_why_set(why, RB_ELIMIT,
                         "%llu parameters do not fit one ONNX file, which ends at 2 GiB",
                         (unsigned long long)kind->parameters(values));
    if (err)
        return err;
    rb_writer_init(&writer, kind->name, (uint64_t)values[seed]);
    kind->write(&writer, values);
    err = rb_writer_finish(&writer, ret_onnx, why);
    rb_writer_done(&writer);
    return err;
}
