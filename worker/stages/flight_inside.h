/* SPDX-License-Identifier: Apache-2.0 */
/* Flights from inside: for flight*.c alone.
 *
 * flight: whose turn it is, running > flight_freight: what crosses between stages > flight_ways:
 * past the hosts
 *
 *     receive ─▶ host's side ─push─▶ device's side ─put─▶ arena       in front of its reader
 *     post ◀──── host's side ◀─pull─ device's side ◀─take─ arena      behind its maker
 *
 * Puts and takes are a part of the pass, and on its tape; the rest is in front of it and behind
 * it. */
#ifndef RB_WORKER_STAGES_FLIGHT_INSIDE_H
#define RB_WORKER_STAGES_FLIGHT_INSIDE_H

#include "worker/stages/flight.h"

/* What runs of a microbatch in this stage. */
const struct rb_part *rb_flight_part(const struct rb_pilot *pilot, const struct rb_flight *flight);

/* Send on what was posted, as far as links take it.  RB_ECANCELED: the pilot is to stop. */
int rb_flight_go_on(const struct rb_pilot *pilot, struct rb_why *why);

/* Make room for all that comes to this configuration's stage and leaves it.  RB_ENOMEM. */
int rb_freight_fit(const struct rb_pilot *pilot, struct rb_flight *flight, struct rb_why *why);
void rb_freight_free(struct rb_model *model, struct rb_flight *flight);

/* Receive from all stages first .. end - 1 that send something, onto the device; post to all of
 * them that read something. */
int rb_freight_receive(const struct rb_pilot *pilot, struct rb_flight *flight, uint32_t first,
                       uint32_t end, struct rb_why *why);
int rb_freight_post(const struct rb_pilot *pilot, const struct rb_flight *flight, uint32_t first,
                    uint32_t end, struct rb_why *why);

/* On the device: put what instruction `at` is the first to read; take what it has made. */
void rb_freight_put(const struct rb_pilot *pilot, const struct rb_flight *flight, uint32_t at);
void rb_freight_take(const struct rb_pilot *pilot, const struct rb_flight *flight, uint32_t at);

/* Between GPUs of one host, what crosses to or from stage k is a parcel (worker/parcels.h), and a
 * word by the link says so; as long as no parcel can be given, the word says that bytes come behind
 * it.  *ret_parcel false: the bytes are still to be sent, or received. */
int rb_way_put(const struct rb_pilot *pilot, const struct rb_flight *flight, uint32_t k,
               uint64_t tag, bool *ret_parcel, struct rb_why *why);
int rb_way_take(const struct rb_pilot *pilot, struct rb_flight *flight, uint32_t k, uint64_t tag,
                bool *ret_parcel, struct rb_why *why);
void rb_ways_free(struct rb_model *model);

/* Valid targets, of a lap: the last stage knows them, the other stages are told behind the message
 * that comes back. */
void rb_freight_hear(const struct rb_pilot *pilot, struct rb_flight *flight);
void rb_freight_tell(const struct rb_pilot *pilot, const struct rb_flight *flight);

#endif
