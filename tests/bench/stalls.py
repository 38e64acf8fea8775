# SPDX-License-Identifier: Apache-2.0
"""What a change costs, told from committed steps alone: the same arithmetic for Rubato and its peers.

A row is a dict with step, time (ms), devices and configuration (a number that is new with each set of
processes), and step_ms where the trainer says how long the step took.  Gap i is the time from row i - 1 to
row i.  The window of a change goes from the request to ten steps after the flip, which is the first row of
a configuration that was not there when the request was made.

    stall    the longest gap of the window, less the median step of the configuration that it ends in
    excess   the largest of (gap - median step of the configuration that it ends in): the same where the
             window has one configuration, stricter where a set of slow steps hides a gap of quick ones
"""
import statistics

STEPS_AFTER = 10


def by_time(rows):
    """Rows sorted by time; a commit that several processes report counts once, at its first report."""
    seen, out = set(), []
    for row in sorted(rows, key=lambda row: row["time"]):
        if (row["step"], row["configuration"]) not in seen:
            seen.add((row["step"], row["configuration"]))
            out.append(row)
    return out


def medians(rows):
    """The median step of each configuration."""
    steps = {}
    for before, row in zip(rows, rows[1:]):
        if "step_ms" in row:
            steps.setdefault(row["configuration"], []).append(row["step_ms"])
        elif before["configuration"] == row["configuration"]:
            steps.setdefault(row["configuration"], []).append(row["time"] - before["time"])
    return {configuration: statistics.median(found) for configuration, found in steps.items()}


def window(rows, asked, flips=True, until=None):
    """(first gap, flip, end gap) by row number, or None where the rows do not go so far.

    A change that does not flip, such as a checkpoint, was over at the time `until`, which stands for the flip.
    """
    first = next((i for i, row in enumerate(rows) if i and row["time"] >= asked), None)
    if first is None:
        return None
    old = rows[first - 1]["configuration"]
    if flips:
        flip = next((i for i in range(first, len(rows)) if rows[i]["configuration"] != old), None)
    else:
        flip = next((i for i in range(first, len(rows)) if rows[i]["time"] >= until), None)
    if flip is None or flip + STEPS_AFTER > len(rows):
        return None
    return first, flip, flip + STEPS_AFTER - 1


def cost(rows, middle, first, end):
    """Of gaps first .. end: the longest, the stall, the excess, and the devices the longest ends on."""
    gaps = [(rows[i]["time"] - rows[i - 1]["time"], rows[i]) for i in range(first, end + 1)]
    longest, row = max(gaps, key=lambda gap: gap[0])
    return {
        "gap": longest,
        "stall": max(0, longest - middle[row["configuration"]]),
        "excess": max(gap - middle[row["configuration"]] for gap, row in gaps),
        "devices": row["devices"],
    }


def change(rows, middle, asked, **how):
    """All of one change: its cost, ms to the first commit of the new set, steps lost; None where rows are missing."""
    found = window(rows, asked, **how)
    if not found:
        return None
    first, flip, end = found
    before, after = rows[first - 1]["configuration"], rows[flip]["configuration"]
    return {
        **cost(rows, middle, first, end),
        "first": first, "flip": flip, "end": end,
        "ready": rows[flip]["time"] - asked,
        "lost": max(0, max(row["step"] for row in rows[:flip]) - rows[flip]["step"] + 1),
        "step_before": middle.get(before, 0), "step_after": middle.get(after, 0),
        "from": rows[first - 1]["devices"], "to": rows[flip]["devices"],
    }


def quiet(rows, middle, changes, gaps):
    """The cost of every window of so many gaps in which nothing was asked for, one after the other."""
    busy = {i for one in changes for i in range(one["first"], one["end"] + 1)}
    out, start = [], 1
    for i in range(1, len(rows)):
        if i in busy or rows[i]["configuration"] != rows[i - 1]["configuration"]:
            start = i + 1
        elif i - start + 1 == gaps:
            out.append(cost(rows, middle, start, i))
            start = i + 1
    return out


def summary(rows, middle, changes, others):
    """Medians over changes of one kind, beside the same of quiet windows of the same length, on as many
    devices as the changes' longest gaps end on.  `others`: all changes of the run."""
    gaps = round(statistics.median(one["end"] - one["first"] + 1 for one in changes))
    still = quiet(rows, middle, others, gaps)
    devices = {one["devices"] for one in changes}
    still = [one for one in still if one["devices"] in devices] or still
    out = {"n": len(changes), "gaps": gaps, "quiet_n": len(still)}
    for name in ("stall", "excess"):
        out[name] = statistics.median(one[name] for one in changes)
        out["quiet_" + name] = statistics.median(one[name] for one in still) if still else None
        out["net_" + name] = out[name] - out["quiet_" + name] if still else None
    for name in ("ready", "step_before", "step_after", "gap"):
        out[name] = statistics.median(one[name] for one in changes)
    out["lost"] = max(one["lost"] for one in changes)
    return out
