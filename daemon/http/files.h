/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the status page (page/), as embed.py puts them into the program.
 *
 * page/ > embed.py > [files] > answer */
#ifndef RB_DAEMON_HTTP_FILES_H
#define RB_DAEMON_HTTP_FILES_H

#include <stddef.h>

struct rb_http_file {
    const char *path, *type; /* "/page.css"; index.html is "/" */
    const void *data;
    size_t size;
};

extern const struct rb_http_file rb_http_files[]; /* ends with a NULL path */

#endif
