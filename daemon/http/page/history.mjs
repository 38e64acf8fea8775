// SPDX-License-Identifier: Apache-2.0
// The rows of a job's metrics that a page has: the newest at once, older ones page by page.  Pure.
import { number } from './human.mjs';

export const KEEP = 65536; // steps
export const PAGE = 2048; // rows that are asked for at a time: some 400 KB, for which there are 10 s

// known: there is nothing more to ask for from there to the last row.
export function empty() {
    return { rows: [], known: Infinity, configuration: null };
}

// What to ask for next: a list of {after, to, anew}, for rows of steps after < step <= to.  A configuration that is new
// may have begun with a fall back that is made up for already, and who was away for long has a gap: then all is asked
// for anew, and what is there stays until it is told again.
export function wanted(history, status) {
    const step = status.step ?? 0;
    const last = history.rows.length ? history.rows[history.rows.length - 1].step : 0;
    const anew = history.configuration !== status.configuration || last < step - PAGE;
    const least = Math.max(0, step - KEEP);
    const list = [{ after: Math.max(0, step - PAGE, anew ? 0 : Math.min(last, step)), to: Infinity, anew }];

    if (!anew && history.known > least)
        list.push({ after: Math.max(least, history.known - PAGE), to: history.known, anew });
    return list;
}

function rowsOf(reply) {
    const at = (name) => reply.columns.indexOf(name);
    const names = { step: 'step', loss: 'loss', ms: 'step_ms', devices: 'devices', configuration: 'configuration',
        evalLoss: 'eval_loss', compute: 'compute_ms', slowest: 'slowest_ms' };
    const columns = Object.entries(names).map(([key, name]) => [key, at(name)]);

    return reply.rows.map((cells) => Object.fromEntries(columns.map(([key, i]) => [key, number(cells[i])])));
}

// With what the reply to one of `wanted` says; `status` is that by which it was asked for.
export function merged(history, status, { after, to, anew }, reply) {
    const rows = [...history.rows.filter((row) => row.step <= after),
        ...rowsOf(reply).filter((row) => row.step > after && row.step <= to),
        ...history.rows.filter((row) => row.step > to)];

    return {
        rows: rows.slice(Math.max(0, rows.length - KEEP)),
        known: anew ? after : Math.min(history.known, after),
        configuration: status.configuration,
    };
}

// Those of the newest so many steps; 0: all.
export function newest(rows, steps) {
    const last = rows.length ? rows[rows.length - 1].step : 0;

    return steps ? rows.filter((row) => row.step > last - steps) : rows;
}

// ms that half of the newest configuration's steps took at most, and 99 of 100; null: no step.
export function times(rows) {
    const last = rows.length ? rows[rows.length - 1].configuration : null;
    const from = rows.findLastIndex((row) => row.configuration !== last) + 1;
    const ms = rows.slice(from).map((row) => row.ms).filter(Number.isFinite).sort((a, b) => a - b);

    return ms.length ? { median: ms[ms.length >> 1], slow: ms[ms.length - 1 - Math.floor(ms.length / 100)] }
        : { median: null, slow: null };
}

// The row of a step, or that before it.
export function rowAt(rows, step) {
    let low = 0;
    let high = rows.length;

    while (high - low > 1) {
        const middle = (low + high) >> 1;

        if (rows[middle].step <= step)
            low = middle;
        else
            high = middle;
    }
    return rows[low] ?? null;
}

// Rows by columns of as many steps each, at most n of them: {step, step after, rows}; one without rows has none.
export function columns(rows, n) {
    if (!rows.length)
        return [];
    const first = rows[0].step;
    const steps = rows[rows.length - 1].step - first + 1;
    const of = Math.max(1, Math.min(n, steps));
    const list = Array.from({ length: of }, (_, c) =>
        ({ from: first + (steps * c) / of, to: first + (steps * (c + 1)) / of, rows: [] }));

    for (const row of rows)
        list[Math.min(of - 1, Math.floor(((row.step - first) * of) / steps))].rows.push(row);
    return list;
}

// Of a column's finite values: {mean, low, high}; null: there is none.
export function spread(column, key) {
    const values = column.rows.map((row) => row[key]).filter(Number.isFinite);

    return values.length ? {
        mean: values.reduce((sum, x) => sum + x, 0) / values.length,
        low: values.reduce((a, b) => Math.min(a, b)),
        high: values.reduce((a, b) => Math.max(a, b)),
    } : null;
}

// Where the number of devices changes: {step, devices}, the first row's too.
export function changes(rows) {
    return rows.filter((row, i) => i === 0 || row.devices !== rows[i - 1].devices)
        .map(({ step, devices }) => ({ step, devices }));
}
