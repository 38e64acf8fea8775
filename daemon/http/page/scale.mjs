// SPDX-License-Identifier: Apache-2.0
// Where a value lies in a picture.  Pure.

// Round numbers from low to high, about n of them.
export function ticks(low, high, n) {
    const raw = (high - low) / n;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= raw) ?? 10 * power;
    const list = [];

    if (!(raw > 0) || !Number.isFinite(raw))
        return [low];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
        list.push(Number((i * step).toPrecision(12)));
    return list;
}

// Powers of ten, each second or third of them where they are many, with what lies between where they are few.
function powers(low, high) {
    const [first, last] = [Math.floor(Math.log10(low)), Math.log10(high)];
    const list = [];

    for (let power = first; power <= last; power += Math.max(1, Math.ceil((last - first) / 6)))
        list.push(10 ** power, ...(high / low < 1e3 ? [2 * 10 ** power, 5 * 10 ** power] : []));
    return list.filter((x) => x >= low && x <= high);
}

// From values to the height of a picture, the largest at the top.  By powers where they would else lie on its floor.
export function vertical(values, top, bottom) {
    const finite = values.filter(Number.isFinite);
    let low = finite.length ? finite.reduce((a, b) => Math.min(a, b)) : 0;
    let high = finite.length ? finite.reduce((a, b) => Math.max(a, b)) : 1;
    const byPowers = low > 0 && high / low > 50;
    const of = byPowers ? Math.log10 : (x) => x;

    if (!(high > low)) {
        low -= Math.abs(low) / 10 || 1;
        high += Math.abs(high) / 10 || 1;
    }
    return {
        y: (value) => bottom - ((of(value) - of(low)) / (of(high) - of(low))) * (bottom - top),
        ticks: byPowers ? powers(low, high) : ticks(low, high, 4),
        byPowers,
    };
}

// From steps to the width of a picture.
export function horizontal(rows, left, right) {
    const first = rows[0].step;
    const last = rows[rows.length - 1].step;
    const span = Math.max(1, last - first);

    return {
        first,
        last,
        x: (step) => left + ((step - first) / span) * (right - left),
        step: (x) => Math.round(first + ((x - left) / (right - left)) * span),
        ticks: ticks(first, last, Math.max(3, Math.floor((right - left) / 110))).filter(Number.isInteger),
    };
}
