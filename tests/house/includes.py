#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a file includes a room that it may not, or when rooms form a cycle.

usage: includes.py SOURCE_ROOT

The tables are those of docs/ARCHITECTURE.md, read from there, so that the page cannot go stale: one of rooms,
one of the folders in large rooms.  All folders of a room may include what lies at its top.
"""
import os
import re
import sys

EVERYTHING = "all but "


def allowed_rooms(root):
    """Room -> the set of rooms it may include, from the table in docs/ARCHITECTURE.md."""
    rooms = {}
    row = re.compile(r"^\| `(\w+)/` \|[^|]*\| ([^|]*) \|$")
    with open(os.path.join(root, "docs/ARCHITECTURE.md")) as page:
        for line in page:
            match = row.match(line.strip())
            if match:
                rooms[match.group(1)] = match.group(2)
    table, before = {}, set()
    for room, text in rooms.items():
        if text == "libc":
            may = set()
        elif text.startswith(EVERYTHING):
            may = set(rooms) - {text[len(EVERYTHING):].strip(), room}
        elif text.startswith("+ "):
            may = before | set(re.split(r"[ ,]+", text[2:]))
        else:
            may = set(re.split(r"[ ,]+", text))
        unknown = may - set(rooms)
        if unknown:
            sys.exit(f"docs/ARCHITECTURE.md: room '{room}' names unknown rooms {sorted(unknown)}")
        table[room] = may
        before = {"base", "proto"}
    return table


def allowed_folders(root):
    """ROOM/FOLDER -> the folders of the room that it may include."""
    folders = {}
    row = re.compile(r"^\| `(\w+/\w+)/` \|[^|]*\| ([^|]*) \|$")
    with open(os.path.join(root, "docs/ARCHITECTURE.md")) as page:
        for line in page:
            match = row.match(line.strip())
            if match:
                room = match.group(1).split("/")[0]
                words = [] if match.group(2).strip() == "-" else re.split(r"[ ,]+", match.group(2).strip())
                folders[match.group(1)] = {f"{room}/{word}" for word in words}
    return folders


def wrong_folder(folders, file, target):
    """What is wrong with an include between two folders of a room, or None."""
    here, there = os.path.dirname(file), os.path.dirname(target)
    if here == there or not here.startswith(there.split("/")[0] + "/") or here.split("/")[0] not in {
            folder.split("/")[0] for folder in folders}:
        return None
    for folder in {here, there} - {here.split("/")[0]}:
        if folder not in folders:
            return f"{folder}/ is not in the table of folders"
    if "/" in there and there not in folders[here]:
        return f"{here}/ may not include {target}"
    return None


def messages(root, table):
    """Generated header -> the room whose schema it comes from."""
    found = {}
    for room in table:
        for name in os.listdir(os.path.join(root, room)):
            if name.endswith(".proto"):
                found[name.replace(".proto", ".pb-c.h")] = room
    return found


def main():
    root = sys.argv[1]
    table = allowed_rooms(root)
    if len(table) < 10:
        sys.exit("docs/ARCHITECTURE.md: the table of rooms was not found")
    generated, folders = messages(root, table), allowed_folders(root)
    include = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
    wrong, seen = [], 0
    for room, may in table.items():
        for folder, _, names in os.walk(os.path.join(root, room)):
            for name in names:
                if not name.endswith((".c", ".h", ".cu")):
                    continue
                path = os.path.join(folder, name)
                seen += 1
                with open(path) as text:
                    for number, line in enumerate(text, 1):
                        match = include.match(line)
                        if not match:
                            continue
                        target = match.group(1)
                        other = generated.get(target, target.split("/")[0])
                        if other in table and other != room and other not in may:
                            wrong.append(f"{os.path.relpath(path, root)}:{number}: {room}/ may not include {target}")
                        elif other == room and (found := wrong_folder(folders, os.path.relpath(path, root), target)):
                            wrong.append(f"{os.path.relpath(path, root)}:{number}: {found}")
                        elif other not in table and target != "onnx.pb-c.h":
                            wrong.append(f"{os.path.relpath(path, root)}:{number}: {target}: name the room it is in")
    for room in table:  # a cycle in the table itself
        reach, todo = set(), list(table[room])
        while todo:
            other = todo.pop()
            if other not in reach:
                reach.add(other)
                todo += table[other]
        if room in reach:
            wrong.append(f"docs/ARCHITECTURE.md: room {room}/ reaches itself")
    print("\n".join(wrong))
    print(f"{seen} files, {len(wrong)} wrong includes")
    sys.exit(1 if wrong or not seen else 0)


main()
