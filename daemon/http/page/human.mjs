// SPDX-License-Identifier: Apache-2.0
// Numbers and times as people read them, as ctl/human.c writes them.  Pure.

// Of rubatod's JSON, where what is not finite is a word; null: it is not known.
export function number(value) {
    const words = { nan: NaN, inf: Infinity, '-inf': -Infinity };

    if (typeof value === 'string' && value in words)
        return words[value];
    return typeof value === 'number' ? value : null;
}

// Three digits that count, and the unit.
function scaled(x, base, units) {
    let i = 0;

    for (; Math.abs(x) >= base - 0.5 && i + 1 < units.length; i++)
        x /= base;
    return x.toFixed(i === 0 || Math.abs(x) >= 99.95 ? 0 : Math.abs(x) >= 9.995 ? 1 : 2) + units[i];
}

function known(x, say) {
    return x === null || x === undefined || Number.isNaN(x) ? '-' : say(x);
}

export function count(x) {
    return known(x, () => scaled(x, 1000, ['', ' k', ' M', ' G', ' T']));
}

export function bytes(x) {
    return known(x, () => scaled(x, 1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB']));
}

// Of a loss: NaN is said.
export function real(x) {
    const size = Math.abs(x);

    if (x === null || x === undefined)
        return '-';
    if (!Number.isFinite(x))
        return Number.isNaN(x) ? 'nan' : x > 0 ? 'inf' : '-inf';
    if (x === 0 || (size >= 0.01 && size < 1e6))
        return x.toFixed(size >= 1000 ? 1 : 4);
    return x.toExponential(3);
}

export function ms(x) {
    return known(x, () => (x >= 10000 ? `${(x / 1000).toPrecision(3)} s` : x >= 1000 ? `${(x / 1000).toFixed(2)} s`
        : `${Number(x.toPrecision(3))} ms`));
}

// "1h05m" of seconds.
export function span(seconds) {
    const s = Math.max(0, Math.round(seconds));
    const two = (x) => String(Math.floor(x)).padStart(2, '0');

    if (!Number.isFinite(s))
        return '-';
    if (s < 60)
        return `${s}s`;
    if (s < 3600)
        return `${Math.floor(s / 60)}m${two(s % 60)}s`;
    if (s < 86400)
        return `${Math.floor(s / 3600)}h${two((s % 3600) / 60)}m`;
    return `${Math.floor(s / 86400)}d${two((s % 86400) / 3600)}h`;
}

// "2026-11-28 01:02:03" of unix ms, in UTC as everywhere in Rubato.
export function time(ms) {
    const date = new Date(ms);

    return Number.isNaN(date.getTime()) ? '-' : date.toISOString().slice(0, 19).replace('T', ' ');
}

export function several(n, one) {
    return `${n} ${one}${n === 1 ? '' : 's'}`;
}
