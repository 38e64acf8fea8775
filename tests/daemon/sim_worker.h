/* SPDX-License-Identifier: Apache-2.0 */
/* A worker: worker/train*.c, prepare.c, mailbox.c, opening.c, step.c, feed.c and follow.c as far as
 * others can see them.
 *
 * orders > [sim_process] > words to its agent; messages on the links of its configurations
 *
 * Its three threads (control, preparing, step) and its feeds are state machines; after anything
 * that happens to a process, sim_pump lets each go as far as it can.  Calls that block in the
 * product return RB_EAGAIN here and are made again. */
#ifndef RB_TESTS_DAEMON_SIM_WORKER_H
#define RB_TESTS_DAEMON_SIM_WORKER_H

#include "sim.h"

#include "plan/replicas.h"
#include "worker/configuration.h"
#include "worker/join/recovery.h"
#include "worker/join/roster.h"
#include "worker/model.h"
#include "worker/step/vote.h"

/* ---- Links (sim_net.c) ------------------------------------------------------------------------*/

struct sim_message {
    struct sim_message *next;
    uint64_t tag, number; /* number: its place among the link's messages */
    size_t size;
    bool end; /* the link ends behind it */
    uint8_t bytes[];
};

struct sim_queue {
    struct sim_message *first, *last;
};

struct sim_seat {
    struct sim_process *process;
    bool open, closed, cancelled;
    struct sim_queue inbox[SIM_RANKS];
    bool lost[SIM_RANKS];
    uint64_t gathering; /* tag of a gather for which this rank has sent its part; 0: none */
};

struct sim_group { /* a configuration's links */
    struct sim_group *next;
    struct sim_job *job;
    uint32_t number, size;
    uint64_t digest; /* of members and shares: two sets under one number never meet */
    struct sim_seat seats[SIM_RANKS];
    struct sim_link {
        uint64_t last, sent; /* messages never overtake each other */
        struct sim_queue stalled;
        bool ended;
    } links[SIM_RANKS][SIM_RANKS]; /* from, to */
};

/* The newest group in which this rank has not met the others yet: a rank that prepares a
 * configuration once more has other links. */
struct sim_group *sim_group(struct sim *sim, struct sim_job *job, uint32_t number, uint32_t size,
                            uint64_t digest, uint32_t rank);
void sim_send(struct sim *sim, struct sim_group *group, uint32_t from, uint32_t to, uint64_t tag,
              const void *bytes, size_t size);
/* The oldest message from a rank, not yet taken; NULL: none. */
const struct sim_message *sim_head(const struct sim_group *group, uint32_t rank, uint32_t from);
void sim_take(struct sim_group *group, uint32_t rank, uint32_t from);
/* all[r * bytes] = what rank r gave.  RB_EAGAIN: not yet. */
int sim_gather(struct sim *sim, struct sim_group *group, uint32_t rank, uint64_t tag,
               const void *mine, void *all, size_t bytes);
int sim_receive(struct sim *sim, struct sim_group *group, uint32_t rank, uint32_t from,
                uint64_t tag, void *bytes, size_t size);
void sim_seat_close(struct sim *sim, struct sim_group *group, uint32_t rank);
void sim_net_died(struct sim *sim, struct sim_process *process, bool heard);
void sim_net_healed(struct sim *sim);
void sim_net_gave_up(struct sim *sim, size_t a, size_t b); /* links between two nodes end */

/* ---- Configurations, as one member has them ---------------------------------------------------*/

struct sim_feed;

struct sim_conf {
    uint32_t number, rank, size;
    uint64_t digest;
    struct sim_process *members[SIM_RANKS];
    bool recovers, restores, stands;
    char restore[64]; /* "": initial weights */
    int32_t owners[SIM_MICROBATCHES];
    struct sim_group *group;
    struct rb_roster *roster; /* in the story's arena */
    struct sim_feed *feed;
    struct rb_configuration as; /* for the product's rules: placement, wants */
    struct sim_conf *later;
};

/* ---- Orders and words -------------------------------------------------------------------------*/

enum sim_order_kind {
    SIM_CONFIGURE,
    SIM_GO,
    SIM_ABANDON,
    SIM_LEAVE,
    SIM_LEAVE_SAVING,
    SIM_STAY,
    SIM_FREEZE
};

struct sim_order {
    struct sim_order *next;
    enum sim_order_kind kind;
    uint64_t fence;
    uint32_t number;
    bool foreseen; /* to go there before any member is ready */
    int64_t level;
    struct sim_conf *conf;
};

enum sim_word_kind {
    SIM_READY,
    SIM_UNREADY,
    SIM_FLIPPED,
    SIM_FROZE,
    SIM_IS_DONE,
    SIM_FAILED_WORD,
    SIM_SAVED, /* by leaving, or periodically */
    SIM_WORDS,
    SIM_HELLO,
    SIM_ROW,
};

struct sim_word {
    enum sim_word_kind kind;
    uint32_t number, rank, configured, ready, microbatch_us;
    uint64_t fence;
    int64_t level;
    bool frozen, done, saved, lost;
    bool saving, unsaved; /* of a Hello; of a save */
    char path[64], reason[96];
    uint64_t order; /* when it was said; 0: taken back */
};

/* ---- A process --------------------------------------------------------------------------------*/

enum sim_phase {
    SIM_IDLE,
    SIM_OPENING,
    SIM_FOLLOWING,
    SIM_TRAINING,
    SIM_FROZEN,
    SIM_LEFT,
    SIM_DONE,
    SIM_FAILED,
    SIM_LEAVING,
};

enum sim_use { SIM_USE_TRAINING, SIM_USE_OPENING, SIM_USE_FOLLOWING };

enum { SIM_RECORD = 512, SIM_ABANDONED = 16, SIM_PROCESSES_LIVE = 64 };

/* What a member says of itself while a configuration is prepared. */
struct sim_introduction {
    struct rb_role role;
    uint8_t held[SIM_BLOCKS];
};

struct sim_process {
    char name[16];
    struct sim *sim;
    struct sim_job *job;
    struct sim_node *node;
    uint32_t device, spawned_for;
    uint32_t slowness; /* in halves of the quickest's time: 2 to 4; */
    bool steady;       /* it stays the same, and may be up to 7 */
    bool alive, stopped, hung, greets, met, pumping, again; /* met: some agent has connected */
    uint64_t ends_behind;                                   /* after so many sends; 0: does not */
    uint64_t stops_behind; /* so many, but for sends of steps: then all of its node is stopped */

    /* control thread */
    uint64_t agent; /* stamp of the rubatod that is connected; 0: none */
    uint64_t alone; /* stamp */
    struct sim_order *orders;
    uint64_t fence, said;
    struct sim_word words[SIM_WORDS];
    int64_t rows; /* committed steps, told from 1 on */
    uint32_t row_number[SIM_STEPS + 1], row_rank[SIM_STEPS + 1];

    /* mailbox */
    uint32_t configured, go, breaks_off, abandoned[SIM_ABANDONED];
    unsigned n_abandoned;
    bool leave, leave_saves, ends, told_stay;
    bool voting; /* it has given its record, and has not heard the others */
    struct sim_conf *prepared, *in_group;
    enum sim_use use;
    uint32_t ready, stands_active;
    uint64_t lingers; /* since when it could have gone to a recovery (sim_check_stop.c) */
    int64_t stands_level;
    int64_t freezes; /* the level + 1 at which it is to freeze; 0: none */
    bool stands_frozen, stands_done;

    /* preparing thread */
    struct sim_conf *wanted, *preparing;
    int preparing_stage;
    bool unwanted, loaded, timer_prepare;
    uint64_t prepare_stamp;
    struct sim_introduction introduction;

    /* step thread */
    enum sim_phase phase;
    bool entered; /* into the phase */
    struct sim_conf *active, *retired, *next;
    uint32_t number, announced; /* entered; and reported */
    int64_t entrance;           /* level */
    struct sim_state state;
    int stage;
    struct rb_testimony testimonies[SIM_RANKS];
    uint8_t testified[SIM_RANKS * SIM_BLOCKS]; /* what they hold */
    bool moved;                                /* a member lacked something */
    struct sim_state aside;                    /* being received */
    uint64_t carrying;                         /* tag of moves that it has sent; 0: none */
    size_t carried;
    struct rb_model model; /* blocks and what is held, for the product's rules */
    struct sim_state whole;
    struct rb_vote_ready takes[SIM_RANKS];
    bool stays[SIM_RANKS];
    int64_t pending, applied; /* levels, as rb_pending and rb_applied have them */
    uint32_t pending_attempt, applied_attempt, applied_by;
    bool applied_skip, committed; /* committed: the step that runs is committed */
    uint32_t attempt, microbatch;
    int64_t kept;     /* level of sums that survived an attempt; -1: none */
    bool kept_redone; /* with other exponents */
    uint8_t record[SIM_RECORD];
    uint64_t sums[SIM_BLOCKS], reduced[SIM_BLOCKS];
    struct rb_vote_decision decision;
    uint64_t timer; /* stamp of the step thread's */
    bool timer_over;
    bool sends_late; /* a voted step that broken rules may finish */

    /* window */
    uint32_t term;
    uint32_t taken_for;
    struct sim_feed *feed;

    /* following */
    struct sim_follow *follow;

    /* saving beside the training; on leaving: it has said that it could not */
    uint64_t saving;
    bool unsaved;
};

struct sim_process *sim_process_spawn(struct sim *sim, struct sim_node *node, struct sim_job *job,
                                      const char *name, uint32_t device, uint32_t spawned_for);
struct sim_process *sim_process_named(struct sim *sim, const char *name);
void sim_process_kill(struct sim_process *process, bool heard, const char *how);
void sim_process_continue(struct sim_process *process);
void sim_pump(struct sim_process *process);

/* sim_control.c: with its agent */
void sim_process_connect(struct sim_process *process, uint64_t agent, int64_t rows_after);
struct sim_word sim_hello(const struct sim_process *process);
void sim_process_await(struct sim_process *process); /* its first one */
void sim_process_hang_up(struct sim_process *process);
void sim_order(struct sim_process *process, const struct sim_order *order);
void sim_tell(struct sim_process *process, enum sim_word_kind kind, const struct sim_word *word);
void sim_tell_unready(struct sim_process *process, uint32_t number, const char *reason);
void sim_tell_rows(struct sim_process *process);
bool sim_pump_orders(struct sim_process *process);
/* The agent's side (sim_agent.c). */
void sim_agent_ended(struct sim *sim, struct sim_process *process);
void sim_agent_hear(struct sim *sim, struct sim_process *process, const struct sim_word *word);

/* sim_mailbox.c */
bool sim_mailbox_can_open(const struct sim_process *process);
bool sim_mailbox_can_take(const struct sim_process *process);
bool sim_mailbox_abandoned(const struct sim_process *process, uint32_t number);
void sim_mailbox_enter(struct sim_process *process, struct sim_conf *conf, enum sim_use use);
/* Is this the configuration that the process opens? */
bool sim_mailbox_opens(const struct sim_process *process, uint32_t number);
/* Is the process told to go to a recovery that is prepared, and still in another configuration? */
bool sim_mailbox_goes(const struct sim_process *process);
/* Then the process leaves the group in which it waits. */
void sim_mailbox_leave_for_recovery(struct sim_process *process);
void sim_mailbox_ready(struct sim_process *process, struct rb_vote_ready *ret_ready);
void sim_mailbox_voted(struct sim_process *process);
/* A process that is told to save and leave hears the end of a vote that it is in. */
bool sim_mailbox_hears_out(const struct sim_process *process);
void sim_conf_free(struct sim_process *process, struct sim_conf *conf);
void sim_obey(struct sim_process *process, struct sim_order *order);

/* sim_prepare.c, sim_opening.c, sim_step.c: true where something has moved */
bool sim_pump_prepare(struct sim_process *process);
int sim_opening_run(struct sim_process *process); /* RB_EAGAIN */
int sim_step_run(struct sim_process *process);    /* RB_EAGAIN */
bool sim_pump_step(struct sim_process *process);  /* sim_train.c */
void sim_step_start(struct sim_process *process);
uint64_t sim_tag(unsigned purpose, uint64_t a, uint64_t b, uint64_t c);
void sim_wait(struct sim_process *process, uint64_t us); /* then timer_over */

enum {
    SIM_STAGE_BEGINS,
    SIM_STAGE_COMPUTES,
    SIM_STAGE_REDUCES,
    SIM_STAGE_VOTES,
    SIM_STAGE_GATHERS,
    SIM_STAGE_TAKES,
    SIM_STAGE_HANDS,
    SIM_STAGE_COLLECTS,
};

/* sim_shards.c */
Rb__Model *sim_model(void);
void sim_conf_place(struct sim *sim, struct sim_job *job, struct sim_conf *conf,
                    const struct rb_replicas *how);
void sim_confs_done(struct sim *sim);
void sim_shards_begin(struct sim_process *process);
void sim_list_wants(struct sim_conf *conf);
void sim_hold(struct sim_state *state, const uint8_t *holds);
void sim_settle(struct sim_state *state);
int sim_shift(struct sim_process *process, const struct sim_conf *next);
bool sim_whole(const struct sim_state *state);
bool sim_has_taken(const struct sim_process *process);
void sim_say_shards(struct sim_process *process, struct rb_vote_ready *ready);
/* All moves of `tag` that concern this rank, from its state into another one.  RB_EAGAIN. */
int sim_carry(struct sim_process *process, struct sim_state *into, uint64_t tag,
              const struct rb_coll_move *moves, size_t n);
int sim_gather_weights(struct sim_process *process);
int sim_take_blocks(struct sim_process *process);
int sim_hand_over(struct sim_process *process);
int sim_collect(struct sim_process *process, uint32_t to);
void sim_update(struct sim_process *process, bool skip); /* sim_step.c: of what is held */
struct rb_testimony sim_testify(const struct sim_process *process);
/* Would these processes, but for one of them, come to a state that is whole? */
bool sim_have_all(struct sim_process *const *processes, size_t n, const struct sim_process *without,
                  int64_t *ret_level);

/* sim_feed.c */
struct sim_feed *sim_feed_open(struct sim_process *process, struct sim_conf *conf, uint32_t term);
void sim_feed_log(struct sim_process *process, bool skip, uint32_t flip); /* to; 0: stays */
void sim_feed_halt(struct sim_feed *feed, const char *reason);
bool sim_feed_level(const struct sim_feed *feed, int64_t level);
int sim_feed_settle(const struct sim_feed *feed); /* RB_EAGAIN */
void sim_feed_close(struct sim_feed *feed);
bool sim_feed_run(struct sim_feed *feed);
void sim_window_enter(struct sim_process *process, uint32_t term);

/* sim_follow.c */
void sim_follow_open(struct sim_process *process, struct sim_conf *conf);
int sim_follow_run(struct sim_process *process); /* RB_EAGAIN */

/* What a feed sends: a header, and behind it what the header describes. */
enum sim_piece_kind { SIM_PIECE_START, SIM_PIECE_BLOCK, SIM_PIECE_ENTRY };
enum {
    SIM_TAG_MEET = 1,
    SIM_TAG_ROLES,
    SIM_TAG_LEVELS,
    SIM_TAG_RESTORED,
    SIM_TAG_COPY,
    SIM_TAG_HASHES,
    SIM_TAG_REDUCE,
    SIM_TAG_VOTE,
    SIM_TAG_PIECE,
    SIM_TAG_ANSWER,
    SIM_TAG_CARRY,
    SIM_TAG_ENTRY
};
struct sim_piece {
    uint32_t kind, block;
    int64_t level;
    uint64_t weights, moments;                     /* of the block */
    uint64_t sums[SIM_BLOCKS], others[SIM_BLOCKS]; /* others: weights of what is not to be held */
    bool skip, flip;
};

#endif
