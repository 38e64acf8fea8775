/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/worker/checkpoint_place.h"

#include "base/arena.h"
#include "base/file.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/restore.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const struct tiny_options checkpoint_job = {
    .samples = 40, .global_batch = 10, .micro_batch = 4, .steps = 100, .hidden = 24};

void checkpoint_place_fill(struct checkpoint_place *place, int64_t level)
{
    struct rb_state *state = &place->state;

    state->level = level;
    state->applied = level - 2;
    state->not_finite = 1;
    for (size_t v = 0; v < place->model->n_variables; v++) {
        const Rb__Variable *variable = place->model->variables[v];

        if (variable->role == RB__VARIABLE__ROLE__FIXED)
            continue;
        for (uint64_t i = 0; i < variable->elements; i++) {
            bool trained = variable->role == RB__VARIABLE__ROLE__TRAINED;
            uint64_t at = variable->offset + i;

            state->w[at] = (float)(at + 1) / 7.0f + (float)level;
            if (state->m)
                state->m[at] = trained ? -(float)at / 3.0f : 0;
            if (state->v)
                state->v[at] = trained ? (float)at * 1e-9f : 0;
        }
        state->exponents[v] = (struct rb_exponent){1.0 / 3.0 + (double)v, (int32_t)v - 2, v != 1};
    }
    state->exponents[1] = (struct rb_exponent){0};
    rb_state_hold_all(state);
    memcpy(state->fixed, &(int64_t[5]){1, 2, 3, 4, 5}, 5 * sizeof(int64_t));
}

void checkpoint_place_open(struct checkpoint_place *place, const struct tiny_options *options)
{
    strcpy(place->folder, "/tmp/rubato-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    place->model = tiny_model(place->folder, options);
    assert_int_equal(rb_state_open(place->model, NULL, &place->state, NULL), 0);
    checkpoint_place_fill(place, 12);
}

void checkpoint_place_close(struct checkpoint_place *place)
{
    rb_state_done(&place->state);
    rb__model__free_unpacked(place->model, NULL);
    rb_file_remove(place->folder, NULL);
}

char *checkpoint_place_write(struct checkpoint_place *place)
{
    struct rb_why why = {0};
    uint64_t bytes = 0;
    char *path = NULL;

    if (rb_checkpoint_write(place->model, &place->state, place->folder, "j", "w", &path, &bytes,
                            &why))
        fail_msg("%s", why.text);
    assert_true(bytes > 0);
    return path;
}

int checkpoint_place_count(const char *folder, const char *prefix)
{
    DIR *listing = opendir(folder);
    struct dirent *entry;
    int n = 0;

    assert_non_null(listing);
    while ((entry = readdir(listing)) != NULL)
        n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(listing);
    return n;
}

int checkpoint_place_restore(struct checkpoint_place *place, const char *path, struct rb_why *why)
{
    struct rb_state back;
    int err;

    assert_int_equal(rb_state_open(place->model, NULL, &back, NULL), 0);
    err = rb_restore(path, place->model, &back, why);
    assert_true((err == 0) == (back.level >= 0));
    rb_state_done(&back);
    return err;
}
