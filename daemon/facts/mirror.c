/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/mirror.h"

#include "base/arena.h"
#include "daemon/facts/writes.h"
#include "proto/reflect.h"

#include <stdlib.h>
#include <string.h>

/* ---- Kinds of keys --------------------------------------------------------------------------- */

/* A key's pattern: "*" stands for one part.  `place` says where the snapshot keeps it. */
enum place {
    LEADER,
    NODES,
    CORDONS,
    DELETIONS,
    EVENTS,
    JOB,
    WISH,
    STATE,
    PROGRESS,
    CONFIGURATIONS,
    WORKERS,
    CHECKPOINTS,
};

static const struct kind {
    const char *pattern;
    enum place place;
    const ProtobufCMessageDescriptor *descriptor;
} kinds[] = {
    {"leader", LEADER, &rb__leader__descriptor},
    {"nodes/*", NODES, &rb__node__descriptor},
    {"cordons/*", CORDONS, &rb__cordon__descriptor},
    {"deletions/*", DELETIONS, &rb__deletion__descriptor},
    {"events/*", EVENTS, &rb__event__descriptor},
    {"jobs/*/job", JOB, &rb__job__descriptor},
    {"jobs/*/wish", WISH, &rb__wish__descriptor},
    {"jobs/*/state", STATE, &rb__job_state__descriptor},
    {"jobs/*/progress", PROGRESS, &rb__progress__descriptor},
    {"jobs/*/configurations/*", CONFIGURATIONS, &rb__configuration__descriptor},
    {"jobs/*/workers/*", WORKERS, &rb__worker_report__descriptor},
    {"jobs/*/checkpoints/*", CHECKPOINTS, &rb__checkpoint__descriptor},
};

static bool matches(const char *pattern, const char *key)
{
    for (; *pattern; pattern++) {
        if (*pattern == '*') {
            if (!*key || *key == '/')
                return false;
            while (*key && *key != '/')
                key++;
        } else if (*pattern != *key++) {
            return false;
        }
    }
    return !*key;
}

static const struct kind *kind_of(const char *key)
{
    for (size_t i = 0; i < RB_COUNT(kinds); i++)
        if (matches(kinds[i].pattern, key))
            return &kinds[i];
    return NULL;
}

/* ---- The mirror ------------------------------------------------------------------------------ */

struct entry {
    const struct kind *kind;
    struct rb_fact fact; /* key, text and message are owned */
};

struct rb_mirror {
    struct entry *at; /* sorted by key */
    size_t n, room;
    int64_t revision;
    bool fresh; /* `facts` is of the current entries */
    struct rb_facts facts;
    struct rb_arena arena; /* of `facts` */
};

struct rb_mirror *rb_mirror_new(void)
{
    return rb_alloc(sizeof(struct rb_mirror));
}

static void entry_done(struct entry *entry)
{
    free((char *)entry->fact.key);
    free((char *)entry->fact.text);
    if (entry->fact.message)
        protobuf_c_message_free_unpacked((ProtobufCMessage *)entry->fact.message, NULL);
}

void rb_mirror_clear(struct rb_mirror *mirror)
{
    for (size_t i = 0; i < mirror->n; i++)
        entry_done(&mirror->at[i]);
    mirror->n = 0;
    mirror->fresh = false;
}

void rb_mirror_free(struct rb_mirror *mirror)
{
    if (!mirror)
        return;
    rb_mirror_clear(mirror);
    rb_arena_done(&mirror->arena);
    free(mirror->at);
    free(mirror);
}

void rb_mirror_set_revision(struct rb_mirror *mirror, int64_t revision)
{
    mirror->revision = revision;
    mirror->facts.revision = revision;
}

/* The first entry whose key is not below `key`. */
static size_t lower_bound(const struct rb_mirror *mirror, const char *key)
{
    size_t low = 0, high = mirror->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(mirror->at[middle].fact.key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct entry *find(const struct rb_mirror *mirror, const char *key)
{
    size_t i = lower_bound(mirror, key);
    return i < mirror->n && !strcmp(mirror->at[i].fact.key, key) ? &mirror->at[i] : NULL;
}

static void remove_at(struct rb_mirror *mirror, size_t i)
{
    entry_done(&mirror->at[i]);
    memmove(&mirror->at[i], &mirror->at[i + 1], (mirror->n - i - 1) * sizeof(*mirror->at));
    mirror->n--;
    mirror->fresh = false;
}

void rb_mirror_delete(struct rb_mirror *mirror, const char *key)
{
    struct entry *entry = find(mirror, key);
    if (entry)
        remove_at(mirror, (size_t)(entry - mirror->at));
}

int rb_mirror_put(struct rb_mirror *mirror, const char *key, const char *value, size_t size,
                  int64_t revision, int64_t created, int64_t lease, struct rb_why *why)
{
    const struct kind *kind = kind_of(key);
    if (!kind)
        return rb_why_set(why, RB_EUNSUPPORTED, "%s is no known kind of key", key);
    ProtobufCMessage *message = NULL;
    int err = rb_reflect_from_text(value, size, kind->descriptor, &message, why);
    if (err) {
        rb_mirror_delete(mirror, key); /* what was there is not true any more */
        return rb_why_add(why, err, "%s", key);
    }
    size_t i = lower_bound(mirror, key);
    if (i < mirror->n && !strcmp(mirror->at[i].fact.key, key)) {
        entry_done(&mirror->at[i]);
    } else {
        if (mirror->n == mirror->room) {
            mirror->room = mirror->room ? mirror->room * 2 : 64;
            mirror->at = rb_realloc(mirror->at, mirror->room * sizeof(*mirror->at));
        }
        memmove(&mirror->at[i + 1], &mirror->at[i], (mirror->n - i) * sizeof(*mirror->at));
        mirror->n++;
    }
    char *text = rb_alloc(size + 1);
    memcpy(text, value, size);
    char *own = rb_string(key);
    char *slash = strrchr(own, '/');
    mirror->at[i] = (struct entry){kind,
                                   {.key = own,
                                    .name = slash ? slash + 1 : own,
                                    .text = text,
                                    .revision = revision,
                                    .created = created,
                                    .lease = lease,
                                    .message = message}};
    mirror->fresh = false;
    return RB_OK;
}

/* ---- The snapshot ---------------------------------------------------------------------------- */

/* Entries of one kind are neighbours, so a list is a run: copy it out. */
static void add(struct rb_fact_list *list, struct rb_fact *space, size_t *used,
                const struct rb_fact *fact)
{
    if (!list->n)
        list->at = &space[*used];
    space[(*used)++] = *fact;
    list->n++;
}

/* "jobs/ab12/wish" and "jobs/ab12/state" are of one job. */
static bool same_job(const char *key, const char *other)
{
    size_t length = strlen("jobs/") + strcspn(key + strlen("jobs/"), "/") + 1;
    return !strncmp(key, other, length);
}

static size_t count_jobs(const struct rb_mirror *mirror)
{
    const char *last = NULL;
    size_t n = 0;
    for (size_t i = 0; i < mirror->n; i++) {
        const char *key = mirror->at[i].fact.key;
        if (mirror->at[i].kind->place >= JOB && (!last || !same_job(last, key))) {
            last = key;
            n++;
        }
    }
    return n;
}

static struct rb_job_facts *job_of(struct rb_arena *arena, struct rb_job_facts *jobs, size_t *n,
                                   const char *key)
{
    const char *id = key + strlen("jobs/");
    size_t length = strcspn(id, "/");
    if (*n && !strncmp(jobs[*n - 1].id, id, length) && !jobs[*n - 1].id[length])
        return &jobs[*n - 1];
    jobs[*n].id = rb_arena_format(arena, "%.*s", (int)length, id);
    return &jobs[(*n)++];
}

static void place(struct rb_facts *facts, struct rb_job_facts *job, const struct entry *entry,
                  struct rb_fact *space, size_t *used)
{
    switch (entry->kind->place) {
    case LEADER:
        facts->leader = entry->fact;
        return;
    case NODES:
        add(&facts->nodes, space, used, &entry->fact);
        return;
    case CORDONS:
        add(&facts->cordons, space, used, &entry->fact);
        return;
    case DELETIONS:
        add(&facts->deletions, space, used, &entry->fact);
        return;
    case EVENTS:
        add(&facts->events, space, used, &entry->fact);
        return;
    case JOB:
        job->job = entry->fact;
        return;
    case WISH:
        job->wish = entry->fact;
        return;
    case STATE:
        job->state = entry->fact;
        return;
    case PROGRESS:
        job->progress = entry->fact;
        return;
    case CONFIGURATIONS:
        add(&job->configurations, space, used, &entry->fact);
        return;
    case WORKERS:
        add(&job->workers, space, used, &entry->fact);
        return;
    case CHECKPOINTS:
        add(&job->checkpoints, space, used, &entry->fact);
        return;
    }
}

const struct rb_facts *rb_mirror_facts(struct rb_mirror *mirror)
{
    if (mirror->fresh)
        return &mirror->facts;
    rb_arena_done(&mirror->arena);
    struct rb_facts *facts = &mirror->facts;
    *facts = (struct rb_facts){.revision = mirror->revision};
    struct rb_fact *space = RB_ARENA_NEW(&mirror->arena, struct rb_fact, mirror->n + 1);
    struct rb_job_facts *jobs =
        RB_ARENA_NEW(&mirror->arena, struct rb_job_facts, count_jobs(mirror) + 1);
    size_t used = 0;
    for (size_t i = 0; i < mirror->n; i++) {
        const struct entry *entry = &mirror->at[i];
        struct rb_job_facts *job = NULL;
        if (entry->kind->place >= JOB)
            job = job_of(&mirror->arena, jobs, &facts->n_jobs, entry->fact.key);
        place(facts, job, entry, space, &used);
    }
    facts->jobs = jobs;
    mirror->fresh = true;
    return facts;
}

/* ---- What etcd would do ---------------------------------------------------------------------- */

static bool guard_holds(const struct rb_mirror *mirror, const struct rb_write *write)
{
    if (write->revision == RB_ANY_REVISION)
        return true;
    const struct entry *entry = find(mirror, write->key);
    return (entry ? entry->fact.revision : 0) == write->revision;
}

static int apply(struct rb_mirror *mirror, const struct rb_write *write, int64_t lease,
                 struct rb_why *why)
{
    const struct entry *entry = find(mirror, write->key);
    switch (write->kind) {
    case RB_WRITE_PUT:
        return rb_mirror_put(mirror, write->key, write->value, strlen(write->value),
                             mirror->revision, entry ? entry->fact.created : mirror->revision,
                             write->leased ? lease : 0, why);
    case RB_WRITE_DELETE:
        rb_mirror_delete(mirror, write->key);
        return RB_OK;
    case RB_WRITE_DELETE_ALL:
        for (size_t i = lower_bound(mirror, write->key);
             i < mirror->n && !strncmp(mirror->at[i].fact.key, write->key, strlen(write->key));)
            remove_at(mirror, i);
        return RB_OK;
    case RB_WRITE_GUARD:
        return RB_OK;
    }
    return rb_why_set(why, RB_EINTERNAL, "no such kind of write");
}

int rb_mirror_commit(struct rb_mirror *mirror, const struct rb_writes *writes, int64_t lease,
                     struct rb_why *why)
{
    int result = RB_OK;
    for (size_t first = 0, end; first < writes->n; first = end) {
        const struct rb_write *refused = NULL;
        for (end = first;
             end < writes->n && writes->at[end].transaction == writes->at[first].transaction; end++)
            if (!refused && !guard_holds(mirror, &writes->at[end]))
                refused = &writes->at[end];
        if (refused) {
            result = rb_why_set(why, RB_ESTALE, "%s has changed", refused->key);
            continue;
        }
        rb_mirror_set_revision(mirror, mirror->revision + 1);
        for (size_t i = first; i < end; i++) {
            int err = apply(mirror, &writes->at[i], lease, why);
            if (err)
                return err;
        }
    }
    return result;
}
