// SPDX-License-Identifier: Apache-2.0
// Pictures of a job's rows, as SVG: its losses, how many devices it had, where a step's time goes.  One beside the other
// their steps lie at the same places.  Pure.
import { changes, columns, spread } from './history.mjs';
import { html } from './html.mjs';
import { ms, real, several } from './human.mjs';
import { horizontal, ticks, vertical } from './scale.mjs';

export const LEFT = 62; // of the numbers beside a picture
export const RIGHT = 24;
const COLUMN = 2; // pixels

const f = (x) => x.toFixed(1);

// Of a scale: its numbers are round, and may be large.
function short(x) {
    return x !== 0 && (Math.abs(x) >= 1e5 || Math.abs(x) < 1e-3) ? x.toExponential() : String(x);
}

// What all have: a name and what it says, for who does not see it.
function picture(name, width, height, title, description, inside) {
    return html`<svg class="${name}" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img"
 aria-labelledby="${name}-title ${name}-text"><title id="${name}-title">${title}</title>
<desc id="${name}-text">${description}</desc>${inside}</svg>`;
}

function frame(scale, width, say) {
    return scale.ticks.map((value) => {
        const y = scale.y(value);

        return html`<line class="grid" x1="${LEFT}" x2="${width - RIGHT}" y1="${f(y)}" y2="${f(y)}"/>
<text class="label" text-anchor="end" x="${LEFT - 8}" y="${f(y + 4)}">${say(value)}</text>`;
    });
}

// Points with null between them where there is none: a path that is broken there.  One alone is a short dash.
function path(points) {
    let open = false;

    return points.map((point, i) => {
        const move = point && !open;
        const alone = move && !points[i + 1];

        open = Boolean(point);
        return point ? `${move ? 'M' : 'L'}${f(point.x)} ${f(point.y)}${alone ? 'h1.5' : ''}` : '';
    }).join('');
}

// Where rows with equally many devices lie, as {from, to, devices}; the last ends with the picture.
function stretches(rows) {
    const list = changes(rows);

    return list.map(({ step, devices }, i) =>
        ({ devices, from: step, to: list[i + 1]?.step ?? rows[rows.length - 1].step }));
}

// A band between two edges, in pieces where nothing is known.
function band(points) {
    const pieces = [[]];

    for (const point of points) {
        if (point)
            pieces[pieces.length - 1].push(point);
        else if (pieces[pieces.length - 1].length)
            pieces.push([]);
    }
    return pieces.filter((piece) => piece.length > 1).map((piece) => {
        const over = piece.map(({ x, top }) => `${f(x)} ${f(top)}`);
        const under = piece.map(({ x, bottom }) => `${f(x)} ${f(bottom)}`).reverse();

        return `M${[...over, ...under].join('L')}Z`;
    }).join('');
}

function steps(scale, y) {
    return scale.ticks.map((step) =>
        html`<text class="label" text-anchor="middle" x="${f(scale.x(step))}" y="${y}">${step}</text>`);
}

// ---- Losses ----------------------------------------------------------------------------------

function describeLosses(rows, spreads) {
    const losses = rows.filter((row) => Number.isFinite(row.loss));
    const last = losses[losses.length - 1];
    const broken = rows.length - losses.length;
    const moves = changes(rows).slice(1).map(({ step, devices }) => `${several(devices, 'device')} from step ${step}`);

    const least = Math.min(...spreads.filter(Boolean).map((one) => one.low));

    return [
        last && `From ${real(losses[0].loss)} at step ${losses[0].step} to ${real(last.loss)} at step ${last.step}.`,
        last && `The least is ${real(least)}.`,
        broken > 0 && `${several(broken, 'step')} without a loss that is a number.`,
        moves.length > 0 && `Then on ${moves.slice(-12).join(', ')}.`,
    ].filter(Boolean).join(' ');
}

function marks(rows, x, top, bottom) {
    const list = changes(rows);
    let taken = -Infinity;

    return list.slice(1).map(({ step, devices }, i) => {
        const words = `${list[i].devices}→${devices}`;
        const room = x.x(step) - taken > 9 * words.length;

        if (room)
            taken = x.x(step);
        const at = f(x.x(step));

        return html`<line class="change" x1="${at}" x2="${at}" y1="${top}" y2="${bottom}">
<title>from step ${step} on ${several(devices, 'device')}, before on ${list[i].devices}</title></line>${
            room && html`<text class="label change-label" text-anchor="middle" x="${at}" y="${top - 5}">${words}</text>`}`;
    });
}

function evaluationDot(row, x, y) {
    return html`<circle class="evaluation-dot" cx="${f(x.x(row.step))}" cy="${f(y.y(row.evalLoss))}" r="2.5">
<title>evaluation after step ${row.step}: ${real(row.evalLoss)}</title></circle>`;
}

// Where a column lies: in the middle of its steps.
function middleOf(column, x) {
    return x.x((Math.ceil(column.from) + Math.ceil(column.to) - 1) / 2);
}

function columnsIn(rows, width) {
    return columns(rows, Math.floor((width - LEFT - RIGHT) / COLUMN));
}

// rows: at least one.
export function lossChart(rows, width) {
    const height = 250;
    const [top, bottom] = [22, height - 10];
    const x = horizontal(rows, LEFT, width - RIGHT);
    const list = columnsIn(rows, width);
    const spreads = list.map((column) => spread(column, 'loss'));
    const evaluations = rows.filter((row) => Number.isFinite(row.evalLoss));
    const y = vertical([...spreads.flatMap((one) => (one ? [one.low, one.high] : [])),
        ...evaluations.map((row) => row.evalLoss)], top, bottom);
    const points = spreads.map((one, i) =>
        one && { x: middleOf(list[i], x), y: y.y(one.mean), top: y.y(one.high), bottom: y.y(one.low) });
    const broken = list.filter((column) => column.rows.some((row) => !Number.isFinite(row.loss)));
    const title = `Loss of steps ${x.first} to ${x.last}`;

    return picture('losses', width, height, title, describeLosses(rows, spreads), html`
${y.byPowers && html`<text class="label" text-anchor="end" x="${width - RIGHT}" y="${top - 5}">by powers of ten</text>`}
${frame(y, width, short)}${marks(rows, x, top, bottom)}
<path class="spread" d="${band(points)}"/><path class="loss" d="${path(points)}"/>
<path class="evaluation" d="${path(evaluations.map((row) => ({ x: x.x(row.step), y: y.y(row.evalLoss) })))}"/>
${evaluations.length < width / 8 && evaluations.map((row) => evaluationDot(row, x, y))}
${broken.map((one) => html`<text class="broken" text-anchor="middle" x="${f(middleOf(one, x))}" y="${bottom}">!</text>`)}`);
}

// ---- Devices ---------------------------------------------------------------------------------

export function devicesRibbon(rows, width) {
    const height = 56;
    const [top, bottom] = [4, height - 20];
    const x = horizontal(rows, LEFT, width - RIGHT);
    const list = stretches(rows);
    const most = list.reduce((a, one) => Math.max(a, one.devices), 1);
    const said = list.slice(-40).map((one) => `${one.devices} from step ${one.from}`).join(', ');
    const bars = list.map(({ from, to, devices }) => {
        const size = Math.max(2, ((bottom - top) * devices) / most);
        const wide = Math.max(1, x.x(to) - x.x(from));

        const room = wide > 9 * String(devices).length + 4;

        return html`<rect class="devices" x="${f(x.x(from))}" width="${f(wide)}" y="${f(bottom - size)}" height="${f(size)}">
<title>from step ${from}: ${several(devices, 'device')}</title></rect>${
            room && html`<text class="devices-label" x="${f(x.x(from) + 4)}" y="${bottom - 4}">${devices}</text>`}`;
    });

    return picture('ribbon', width, height, `Devices over steps ${x.first} to ${x.last}`, `${said}.`, html`
<text class="label" text-anchor="end" x="${LEFT - 8}" y="${bottom - 4}">devices</text>${bars}${steps(x, height - 5)}`);
}

// ---- Times -----------------------------------------------------------------------------------

// The mean of its devices computes, then some wait for the slowest; the rest is all else.
function parts(column) {
    const [compute, slowest, whole] = ['compute', 'slowest', 'ms'].map((key) => spread(column, key)?.mean ?? null);

    return whole === null ? null : { compute: compute ?? 0, slowest: Math.max(compute ?? 0, slowest ?? 0), whole };
}

// Few steps take long, a start or a change: they are cut off, so that the others are seen.
function highest(list) {
    const whole = list.filter(Boolean).map((one) => one.whole).sort((a, b) => a - b);

    return whole.length ? Math.min(whole[whole.length - 1], 1.5 * whole[Math.floor(0.97 * (whole.length - 1))]) || 1 : 1;
}

export function timesChart(rows, width) {
    const height = 160;
    const [top, bottom] = [10, height - 22];
    const x = horizontal(rows, LEFT, width - RIGHT);
    const list = columnsIn(rows, width);
    const times = list.map(parts);
    const high = highest(times);
    const y = (value) => bottom - (Math.min(value, high) / high) * (bottom - top);
    const layer = (under, over) => band(times.map((one, i) =>
        one && { x: middleOf(list[i], x), top: y(over(one)), bottom: y(under(one)) }));
    const cut = times.some((one) => one && one.whole > high);
    const last = times.filter(Boolean).pop();
    const said = last ? `At the end a step takes ${ms(last.whole)}: devices compute for ${ms(last.compute)} on average, \
the slowest for ${ms(last.slowest)}.` : 'No step has a time.';

    return picture('times', width, height, `Where the time of steps ${x.first} to ${x.last} goes`, said, html`
${frame({ ticks: ticks(0, high, 3), y }, width, ms)}
<path class="compute" d="${layer(() => 0, (one) => one.compute)}"/>
<path class="waits" d="${layer((one) => one.compute, (one) => one.slowest)}"/>
<path class="rest" d="${layer((one) => one.slowest, (one) => Math.max(one.whole, one.slowest))}"/>
${cut && html`<line class="cut" x1="${LEFT}" x2="${width - RIGHT}" y1="${top}" y2="${top}">
<title>some steps took longer</title></line>`}
${steps(x, height - 5)}`);
}
