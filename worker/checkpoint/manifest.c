/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/checkpoint/manifest.h"

#include "proto/digested.h"
#include "worker/checkpoint/checkpoint.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A history is written as the sixteen hex digits of its bits. */
enum { HISTORY_DIGITS = 16 };

/* ---- Writing --------------------------------------------------------------------------------*/

static json_t *exponent_json(const struct rb_exponent *exponent)
{
    char digits[HISTORY_DIGITS + 1];
    uint64_t bits;

    memcpy(&bits, &exponent->history, sizeof bits);
    snprintf(digits, sizeof digits, "%016" PRIx64, bits);
    return json_pack("{s:s, s:i}", "history", digits, "exponent", exponent->exponent);
}

static json_t *exponents_json(const Rb__Model *model, const struct rb_state *state)
{
    json_t *all = json_object();

    for (size_t v = 0; v < state->variables; v++)
        if (state->exponents[v].known)
            json_object_set_new(all, model->variables[v]->name,
                                exponent_json(&state->exponents[v]));
    return all;
}

static json_t *files_json(const struct rb_manifest_file *files, int n)
{
    json_t *all = json_object();

    for (int i = 0; i < n; i++)
        json_object_set_new(all, files[i].name,
                            json_pack("{s:I, s:s}", "bytes", (json_int_t)files[i].bytes, "digest",
                                      files[i].digest));
    return all;
}

int rb_manifest_text(const Rb__Model *model, const struct rb_state *state,
                     const struct rb_manifest_file *files, int n, char **ret_text,
                     struct rb_why *why)
{
    json_t *manifest = json_pack(
        "{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:o, s:o}", "format", RB_CHECKPOINT_FORMAT,
        "version", RB_CHECKPOINT_VERSION, "step", (json_int_t)state->level, "samples",
        (json_int_t)(state->level * model->global_batch), "applied", (json_int_t)state->applied,
        "notFinite", (json_int_t)state->not_finite, "seed", (json_int_t)model->seed, "specDigest",
        model->spec_digest, "numericClass", model->numeric_class, "exponents",
        exponents_json(model, state), "files", files_json(files, n));
    char *text;

    if (manifest && model->settings)
        json_object_set_new(manifest, "settings", json_string(model->settings));
    text = manifest ? rb_digested_text(manifest) : NULL;
    json_decref(manifest);
    if (!text)
        return rb_why_set(why, RB_EINVAL, "the model has names that are no UTF-8");
    *ret_text = text;
    return 0;
}

/* ---- Reading --------------------------------------------------------------------------------*/

static int bad(struct rb_why *why, const char *what)
{
    return rb_why_set(why, RB_EINVAL, "the manifest is damaged: %s", what);
}

static int read_exponents(json_t *all, const Rb__Model *model, struct rb_state *state,
                          struct rb_why *why)
{
    size_t found = 0;

    for (size_t v = 0; v < state->variables; v++) {
        json_t *one = json_object_get(all, model->variables[v]->name);
        const char *digits;
        json_int_t exponent;
        double history;
        uint64_t bits;
        char *end;

        state->exponents[v] = (struct rb_exponent){0};
        if (!one)
            continue;
        if (json_unpack(one, "{s:s, s:I}", "history", &digits, "exponent", &exponent) < 0 ||
            strlen(digits) != HISTORY_DIGITS)
            return bad(why, "an exponent is impossible");
        bits = strtoull(digits, &end, 16);
        memcpy(&history, &bits, sizeof history);
        if (*end || !isfinite(history) || history <= 0 || exponent < RB_EXPONENT_LOWEST ||
            exponent > RB_EXPONENT_HIGHEST)
            return bad(why, "an exponent is impossible");
        state->exponents[v] = (struct rb_exponent){history, (int32_t)exponent, true};
        found++;
    }
    return found == json_object_size(all) ? 0 : bad(why, "exponents of unknown variables");
}

static int read_files(json_t *all, struct rb_manifest_file *files, int n, struct rb_why *why)
{
    if (json_object_size(all) != (size_t)n)
        return bad(why, "it lists other files");
    for (int i = 0; i < n; i++) {
        json_t *one = json_object_get(all, files[i].name);
        const char *digest;
        json_int_t bytes;

        if (json_unpack(one, "{s:I, s:s}", "bytes", &bytes, "digest", &digest) < 0 || bytes < 0 ||
            strlen(digest) != 32)
            return bad(why, "it lists other files");
        files[i].bytes = (uint64_t)bytes;
        memcpy(files[i].digest, digest, 33);
    }
    return 0;
}

static int read_all(json_t *manifest, const Rb__Model *model, struct rb_state *state,
                    struct rb_manifest_file *files, int n, const char *text, size_t size,
                    struct rb_why *why)
{
    json_int_t version, step, applied, not_finite, seed;
    const char *format, *spec, *class;
    json_t *exponents, *listed;
    int err;

    if (json_unpack(manifest, "{s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:o, s:o}", "format",
                    &format, "version", &version, "step", &step, "applied", &applied, "notFinite",
                    &not_finite, "seed", &seed, "specDigest", &spec, "numericClass", &class,
                    "exponents", &exponents, "files", &listed) < 0)
        return bad(why, "fields are missing");
    if (strcmp(format, RB_CHECKPOINT_FORMAT) != 0 || version != RB_CHECKPOINT_VERSION)
        return rb_why_set(why, RB_EUNSUPPORTED, "it is a %.32s of version %lld", format,
                          (long long)version);
    err = rb_digested_check(manifest, text, size, why);
    if (err)
        return rb_why_add(why, err, "the manifest is damaged");
    if (strcmp(spec, model->spec_digest) != 0 || (uint64_t)seed != model->seed)
        return rb_why_set(why, RB_EREFUSED,
                          "it belongs to another job: model, data or training settings differ");
    if (step < 0 || step > model->steps || applied < 0 || applied > step || not_finite < 0 ||
        not_finite > step)
        return bad(why, "a counter is impossible");
    err = read_exponents(exponents, model, state, why);
    if (err)
        return err;
    state->level = step;
    state->applied = applied;
    state->not_finite = not_finite;
    return read_files(listed, files, n, why);
}

int rb_manifest_read(const char *text, size_t size, const Rb__Model *model, struct rb_state *state,
                     struct rb_manifest_file *files, int n, struct rb_why *why)
{
    json_error_t error;
    json_t *manifest = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    int err;

    if (!manifest)
        return rb_why_set(why, RB_EINVAL, "the manifest is no JSON: line %d: %s", error.line,
                          error.text);
    err = read_all(manifest, model, state, files, n, text, size, why);
    json_decref(manifest);
    return err;
}
