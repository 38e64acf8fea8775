/* SPDX-License-Identifier: Apache-2.0 */
/* The first words on a connection between workers.
 *
 * the one that connects -- hello --> the other -- welcome --> and then frames
 *
 *     hello:   "RBHELLO1", u32 bytes in all, u32 configuration, rank, to, size, u16 flags, dialect,
 *              then job, digest and worker, each u16 length and bytes without a NUL
 *     welcome: 256 bytes: "RBWELCM1", i32 error of base/error.h, u32 shared, text with its NUL
 *
 * Little-endian.  The caller sends nothing more until it is welcome.  A welcome with `shared`
 * carries the memory as a file descriptor.  Decoding is pure and takes hostile bytes. */
#ifndef RB_COLL_HELLO_H
#define RB_COLL_HELLO_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RB_HELLO_MAX = 1024, RB_HELLO_TEXT = 256, RB_WELCOME_SIZE = 256 };

/* Workers of two versions with the same dialect may train together.  Raised with each change of
 * what workers send each other (frames of links, records of votes, what feeds and openings say), or
 * of the plans that agents make from the same facts.  0: from before there were dialects. */
enum { RB_HELLO_DIALECT = 1 };

enum rb_hello_flag { RB_HELLO_SHARED = 1 }; /* can use shared memory */

struct rb_hello {
    uint32_t configuration;
    uint32_t rank, to, size; /* the sender, the addressee, the size of the group */
    uint16_t flags, dialect;
    char job[RB_HELLO_TEXT], digest[RB_HELLO_TEXT], worker[RB_HELLO_TEXT];
};

/* The encoded size. */
size_t rb_hello_encode(const struct rb_hello *hello, uint8_t bytes[RB_HELLO_MAX]);

/* RB_EAGAIN: the bytes may begin a hello, more must come.  RB_EINVAL: they are no hello. */
int rb_hello_decode(const uint8_t *bytes, size_t size, struct rb_hello *ret, struct rb_why *why);

struct rb_welcome {
    int err; /* 0, or why the hello was refused */
    bool shared;
    char text[200];
};

void rb_welcome_encode(const struct rb_welcome *welcome, uint8_t bytes[RB_WELCOME_SIZE]);
int rb_welcome_decode(const uint8_t bytes[RB_WELCOME_SIZE], struct rb_welcome *ret);

#endif
