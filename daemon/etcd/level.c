/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/etcd/level.h"

enum { PATIENCE = 2 }; /* small questions without an answer that end a watch */

void rb_level_heard(struct rb_level *level, int64_t revision)
{
    if (revision > level->heard)
        level->heard = revision;
}

enum rb_level_next rb_level_answer(struct rb_level *level, bool answered, int64_t revision)
{
    if (!answered)
        return ++level->unanswered < PATIENCE ? RB_LEVEL_FINE : RB_LEVEL_SILENT;
    level->unanswered = 0;
    if (level->expected > level->heard)
        return RB_LEVEL_ASK;
    level->expected = revision;
    return RB_LEVEL_FINE;
}

enum rb_level_next rb_level_newest(struct rb_level *level, bool answered, int64_t newest)
{
    if (!answered)
        return RB_LEVEL_SILENT;
    if (newest > level->expected)
        level->expected = newest; /* written since; it may be on its way still */
    else if (newest > level->heard)
        return RB_LEVEL_BEHIND;
    else
        level->heard = level->expected; /* all behind it was written by others */
    return RB_LEVEL_FINE;
}
