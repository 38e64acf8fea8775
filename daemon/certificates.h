/* SPDX-License-Identifier: Apache-2.0 */
/* This node's certificates while it runs: new files are told of, and so are files that do not do or
 * are about to expire.
 *
 * files, the clock > [certificates] > log, metrics
 *
 * The users of the files read new ones by themselves (proto/tls.h); here the operator is told in
 * time. */
#ifndef RB_DAEMON_CERTIFICATES_H
#define RB_DAEMON_CERTIFICATES_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum { RB_CERTIFICATES = 2 };

enum rb_certificate_age { RB_CERTIFICATE_GOOD, RB_CERTIFICATE_LATE, RB_CERTIFICATE_EXPIRED };

/* Late: less than a tenth of its time is left, and less than two weeks.  Unix seconds.  Pure. */
enum rb_certificate_age rb_certificate_age(int64_t from, int64_t until, int64_t now);

struct rb_certificates;

struct rb_certificates *rb_certificates_new(uv_loop_t *loop);
void rb_certificates_free(struct rb_certificates *certificates); /* the loop must run once more */

/* Look after a folder of certificates.  option: "--tls", of which there is one each.  host: the
 * name by which others call this node; NULL: they do not.  meanwhile: what is so while files are
 * there that do not do.  option and meanwhile outlive this.  Errors as of rb_tls_new. */
int rb_certificates_add(struct rb_certificates *certificates, const char *option,
                        const char *folder, const char *host, const char *meanwhile,
                        struct rb_why *why);

struct rb_certificate {
    const char *option;
    int64_t until; /* Unix seconds */
};

/* Returns how many there are. */
size_t rb_certificates_list(const struct rb_certificates *certificates,
                            struct rb_certificate ret[RB_CERTIFICATES]);

#endif
