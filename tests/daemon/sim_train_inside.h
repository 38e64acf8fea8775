/* SPDX-License-Identifier: Apache-2.0 */
/* The step thread's phases from inside: for sim_train*.c alone.  A phase returns the next one, or
 * STAY.
 *
 * sim_train: phases, waiting, ends > [sim_train_enter, sim_train_steps] > sim_train_stand */
#ifndef RB_TESTS_DAEMON_SIM_TRAIN_INSIDE_H
#define RB_TESTS_DAEMON_SIM_TRAIN_INSIDE_H

#include "sim_worker.h"

enum { STAY = -1 };
enum { SAVE_LOW_US = 5000, SAVE_HIGH_US = 60000 };

/* ---- Where it stands, and ways out: sim_train_stand.c -----------------------------------------*/

void sim_train_stand(struct sim_process *process, enum sim_phase phase);
void sim_train_drop(struct sim_process *process, struct sim_conf **conf);
void sim_train_leave_groups(struct sim_process *process);
int sim_train_fail(struct sim_process *process, const char *reason);
int sim_train_freeze(struct sim_process *process, const char *reason);
/* An attempt or an opening ended early: a lost peer freezes, the rest is an end. */
int sim_train_interrupted(struct sim_process *process, int err);
void sim_train_exit(struct sim *sim, void *who, uint64_t stamp, void *what);

/* ---- Into a configuration: sim_train_enter.c --------------------------------------------------*/

void sim_train_advance(struct sim_process *process);
void sim_train_tell_entered(struct sim_process *process);
int sim_train_enter(struct sim_process *process);
int sim_train_opening(struct sim_process *process);
int sim_train_following(struct sim_process *process);

/* ---- In a configuration: sim_train_steps.c ----------------------------------------------------*/

int sim_train_training(struct sim_process *process);

#endif
