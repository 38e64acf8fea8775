#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files as C: a table of rb_http_file (files.h).  usage: embed.py OUT.c FILE..."""
import os
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".mjs": "text/javascript; charset=utf-8"}

out, *paths = sys.argv[1:]
arrays, rows = [], []
for number, path in enumerate(paths):
    name = os.path.basename(path)
    with open(path, "rb") as file:
        data = file.read()
    lines = [", ".join(map(str, data[at:at + 24])) for at in range(0, len(data), 24)]
    arrays.append(f"static const unsigned char file_{number}[] = {{\n" + ",\n".join(lines) + "};\n")
    where = "/" if name == "index.html" else "/" + name
    rows.append(f'    {{"{where}", "{TYPES[os.path.splitext(name)[1]]}", file_{number}, sizeof(file_{number})}},\n')
with open(out, "w") as file:
    file.write('#include "daemon/http/files.h"\n\n' + "\n".join(arrays)
               + "\nconst struct rb_http_file rb_http_files[] = {\n" + "".join(rows) + "    {0},\n};\n")
