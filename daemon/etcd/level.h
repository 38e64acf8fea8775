/* SPDX-License-Identifier: Apache-2.0 */
/* Is a silent watch one with nothing to say?  Pure: answers go in, what to do next comes out.
 *
 * watch > [level] > watch
 *
 * A small question every now and then tells how far etcd is (RB_LEVEL_FINE).  Where a watch has not
 * come so far by the next small question, others may have written elsewhere in the same etcd.  So a
 * larger question asks when one of our keys was written last (RB_LEVEL_ASK).  A watch that has not
 * told of that write by then is opened anew (RB_LEVEL_BEHIND), as is a watch whose etcd does not
 * answer any more (RB_LEVEL_SILENT). */
#ifndef RB_DAEMON_ETCD_LEVEL_H
#define RB_DAEMON_ETCD_LEVEL_H

#include <stdbool.h>
#include <stdint.h>

/* Of a watch that stands.  All zeros at first; a watch that is opened anew expects nothing yet. */
struct rb_level {
    int64_t heard;    /* the revision up to which it has told everything */
    int64_t expected; /* the one to which it must come until the next question; 0: none */
    unsigned unanswered;
};

enum rb_level_next { RB_LEVEL_FINE, RB_LEVEL_ASK, RB_LEVEL_BEHIND, RB_LEVEL_SILENT };

/* The watch has told everything up to `revision`. */
void rb_level_heard(struct rb_level *level, int64_t revision);

/* The answer to the small question: etcd's revision. */
enum rb_level_next rb_level_answer(struct rb_level *level, bool answered, int64_t revision);

/* The answer to the larger question: the revision of the newest of our keys, 0 without any.  A
 * deletion is not among them: it is told with what is written next. */
enum rb_level_next rb_level_newest(struct rb_level *level, bool answered, int64_t newest);

#endif
