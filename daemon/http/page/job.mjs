// SPDX-License-Identifier: Apache-2.0
// One job, as markup: how it does, its pictures, and what it went through.  Pure.
import { events, phase, table } from './all.mjs';
import { devicesRibbon, lossChart, timesChart } from './chart.mjs';
import { newest, times } from './history.mjs';
import { html } from './html.mjs';
import { bytes, count, ms, number, real, several, span } from './human.mjs';

const RANGES = [0, 10000, 1000, 100]; // newest steps that are shown; 0: all that the page has

// Of a status, as rubatoctl says it.
function progressLine(status) {
    const rate = number(status.throughput) ?? 0;
    const loss = number(status.loss);
    const devices = status.devices.length;
    const goes = rate > 0 && status.step > 0 && status.samples > 0 && status.steps > status.step && devices > 0;
    const left = ((status.steps - status.step) * status.samples) / status.step / rate;

    return [`step ${status.step}/${status.steps}`, loss !== null && `loss ${real(loss)}`, rate > 0 && `${count(rate)} samples/s`,
        several(devices, 'device'), goes && `eta ${span(left)}`].filter(Boolean).join(' | ');
}

function fact(name, value) {
    return value ? html`<dt>${name}</dt><dd>${value}</dd>` : null;
}

function checkpointText(status, now) {
    const kept = status.checkpoint;
    const newestOne = kept && `step ${kept.step}, ${span((now - kept.time) / 1000)} ago`;

    return status.checkpointFailed ? html`${newestOne && `${newestOne}; `}<b class="bad">the next failed: ${status.checkpointFailed}</b>` : newestOne;
}

function facts(status, rows, now) {
    const { median, slow } = times(rows);
    const evaluation = number(status.evalLoss);
    const accuracy = number(status.evalAccuracy);
    const expected = number(status.plan.expectedMs);

    return html`<dl>${[
        fact('Model', status.summary),
        fact(`Configuration ${status.configuration}`, status.configuration > 0 && (status.plan.summary ?? '-')),
        fact('Planner', status.plan.chosen),
        fact('A step takes', median !== null && `${ms(median)}, 99 of 100 at most ${ms(slow)}${expected === null ? '' : `; ${ms(expected)} were expected`}`),
        fact('Evaluation', evaluation !== null && `loss ${real(evaluation)}${accuracy === null ? '' : `, accuracy ${(100 * accuracy).toFixed(2)} %`}`),
        fact('Checkpoint', checkpointText(status, now)),
        fact('Devices', `${status.devices.length}; ${status.want} wanted, ${status.min} to ${status.max || 'all'} allowed`),
    ]}</dl>`;
}

// Those that leave something out, and the one that is chosen.
function rangeLinks(job, steps, rows) {
    const all = rows[rows.length - 1].step - rows[0].step + 1;
    const list = RANGES.filter((one) => one < all || one === steps);

    return list.length > 1 && html`<nav class="ranges" aria-label="Steps shown">${list.map((one) => html`<a href="#job=${encodeURIComponent(job)}${
        one > 0 && `&steps=${one}`}"${one === steps && html` aria-current="true"`}>${one ? `newest ${one}` : 'all steps'}</a> `)}</nav>`;
}

function pictures({ job, steps, width, history }) {
    const rows = newest(history.rows, steps);

    if (!rows.length)
        return html`<section><h2>Losses</h2><p class="nothing">No step is done yet.</p></section>`;
    return html`<section class="pictures" data-from="${rows[0].step}" data-to="${rows[rows.length - 1].step}"><h2>Losses</h2>${rangeLinks(job, steps, history.rows)}
<p class="key"><span class="loss-key">loss of steps</span> <span class="evaluation-key">evaluations</span> <span class="change-key">the number of devices changes</span></p>
${lossChart(rows, width)}${devicesRibbon(rows, width)}
<p class="readout" data-own>At the pointer: a step's numbers.</p>
<h2>Where a step's time goes</h2>
<p class="key"><span class="compute-key">computing, the mean of its devices</span> <span class="waits-key">until the slowest is done</span> <span class="rest-key">all else: exchange, update</span></p>
${timesChart(rows, width)}<div class="cross" data-own hidden></div></section>`;
}

function deviceRow(device, stepMs) {
    const share = number(device.microbatches);
    const each = number(device.microbatchMs);
    const part = share !== null && each !== null && stepMs ? Math.min(1, (share * each) / stepMs) : null;
    const slow = device.straggler;

    return html`<tr><th scope="row">${device.node}:${device.device}</th><td>${device.kind}</td><td class="number">${device.pid}</td>
<td class="number">${share}</td><td class="number">${each === null ? '-' : ms(each)}</td><td>${part === null ? '-'
        : html`<progress max="100" value="${Math.round(100 * part)}" aria-label="of a step it computes"></progress> ${Math.round(100 * part)} %`}</td>
<td class="words">${slow && html`<b class="bad">a straggler:</b> ${ms(number(slow.microbatchMs))}, the others ${ms(number(slow.othersMs))}`}</td></tr>`;
}

function devices(status, rows) {
    const { median } = times(rows);

    return table('devices', 'Devices', ['Device', 'Kind', ['Process'], ['Microbatches'], ['Each takes'], 'Computes, of a step', 'Notes'],
        status.devices.map((device) => deviceRow(device, median)), 'It trains on none.');
}

function configurationRow(one, now) {
    const receipt = one.receipt ?? {};
    const cell = (key, say = (x) => x) => html`<td class="number">${receipt[key] === undefined ? '-' : say(receipt[key])}</td>`;

    return html`<tr><th scope="row" class="number">${one.number}</th><td>${String(one.state).toLowerCase()}</td><td>${one.cause}</td>
<td class="number">${receipt.from > 0 && `${receipt.from} → `}${one.devices}</td><td class="words">${one.plan}${one.reason && html`<br><small>${one.reason}</small>`}</td>
${cell('step')}${cell('stall_ms', ms)}${cell('ready_ms', ms)}${cell('bytes_moved', bytes)}${cell('steps_lost')}${
        cell('samples_repeated')}${cell('samples_skipped')}<td class="number">${span((now - one.created) / 1000)}</td></tr>`;
}

function configurations(list, now) {
    return table('configurations', 'Configurations, and what each change cost', [['Number'], 'State', 'Cause', ['Devices'], 'Plan', ['First step'],
        ['Stall'], ['Ready after'], ['Moved'], ['Steps lost'], ['Repeated'], ['Skipped'], ['Age']],
    [...list].reverse().map((one) => configurationRow(one, now)), 'It has had none.');
}

function checkpoints(list, now) {
    return table('checkpoints', 'Checkpoints', [['Step'], ['Size'], ['Age'], 'Node', 'Path'], [...list].reverse().map((one) => html`<tr>
<th scope="row" class="number">${one.step}</th><td class="number">${bytes(one.bytes)}</td><td class="number">${span((now - one.time) / 1000)}</td>
<td>${one.node}</td><td class="path">${one.path}</td></tr>`), 'None is kept.');
}

// seen: {job, steps, width, status, history, configurations, checkpoints, events}; now: unix ms.
export function jobView(seen, now) {
    const { status, history } = seen;

    return html`<p><a href="#">← all jobs</a></p><h1>${status.name} ${phase(status.phase)}</h1>${
        status.reason && html`<p class="reason">${status.reason}</p>`}
<p class="line"><progress max="${status.steps}" value="${Math.min(status.step, status.steps)}" aria-label="steps done"></progress> ${progressLine(status)}</p>
${facts(status, history.rows, now)}
${pictures(seen)}
${devices(status, history.rows)}
${configurations(seen.configurations, now)}
${checkpoints(seen.checkpoints, now)}
${events(seen.events, 'Events', false)}`;
}
