// SPDX-License-Identifier: Apache-2.0
// One job, as markup: how it does, its pictures, and what it went through.  Pure.
import { events, phase, progress, table } from './all.mjs';
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

    return [
        `step ${status.step}/${status.steps}`,
        loss !== null && `loss ${real(loss)}`,
        rate > 0 && `${count(rate)} samples/s`,
        several(devices, 'device'),
        goes && `eta ${span(left)}`,
    ].filter(Boolean).join(' | ');
}

function stepTimes(status, rows) {
    const { median, slow } = times(rows);
    const expected = number(status.plan.expectedMs);

    return median !== null && `${ms(median)}, 99 of 100 at most ${ms(slow)}${
        expected === null ? '' : `; ${ms(expected)} were expected`}`;
}

function evaluationText(status) {
    const loss = number(status.evalLoss);
    const accuracy = number(status.evalAccuracy);

    return loss !== null && `loss ${real(loss)}${accuracy === null ? '' : `, accuracy ${(100 * accuracy).toFixed(2)} %`}`;
}

function checkpointText({ checkpoint, checkpointFailed }, now) {
    const kept = checkpoint && `step ${checkpoint.step}, ${span((now - checkpoint.time) / 1000)} ago`;
    const failed = checkpointFailed && html`<b class="bad">the next failed: ${checkpointFailed}</b>`;

    return kept && failed ? html`${kept}; ${failed}` : kept ?? failed;
}

function facts(status, rows, now) {
    const { plan } = status;
    const list = [
        ['Model', status.summary],
        [`Configuration ${status.configuration}`, status.configuration > 0 && (plan.summary ?? '-')],
        ['Planner', plan.chosen],
        ['A step takes', stepTimes(status, rows)],
        ['Evaluation', evaluationText(status)],
        ['Checkpoint', checkpointText(status, now)],
        ['Devices', `${status.devices.length}; ${status.want} wanted, ${status.min} to ${status.max || 'all'} allowed`],
    ];

    return html`<dl>${list.filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

// Those that leave something out, and the one that is chosen.
function rangeLinks(job, steps, rows) {
    const all = rows[rows.length - 1].step - rows[0].step + 1;
    const list = RANGES.filter((one) => one < all || one === steps);
    const address = (one) => `#job=${encodeURIComponent(job)}${one ? `&steps=${one}` : ''}`;

    return list.length > 1 && html`<nav class="ranges" aria-label="Steps shown">${list.map((one) => html`
<a href="${address(one)}"${one === steps && html` aria-current="true"`}>${one ? `newest ${one}` : 'all steps'}</a>`)}</nav>`;
}

function pictures({ job, steps, width, history }) {
    const rows = newest(history.rows, steps);

    if (!rows.length)
        return html`<section><h2>Losses</h2><p class="nothing">No step is done yet.</p></section>`;
    return html`<section class="pictures" data-from="${rows[0].step}" data-to="${rows[rows.length - 1].step}">
<h2>Losses</h2>${rangeLinks(job, steps, history.rows)}
<p class="key"><span class="loss-key">loss of steps</span> <span class="evaluation-key">evaluations</span>
<span class="change-key">the number of devices changes</span></p>
${lossChart(rows, width)}${devicesRibbon(rows, width)}
<p class="readout" data-own>At the pointer: a step's numbers.</p>
<h2>Where a step's time goes</h2>
<p class="key"><span class="compute-key">computing, the mean of its devices</span>
<span class="waits-key">until the slowest is done</span> <span class="rest-key">all else: exchange, update; of pipelines all</span></p>
${timesChart(rows, width)}<div class="cross" data-own hidden></div></section>`;
}

function shareOfStep(part) {
    const percent = Math.round(100 * Math.min(1, part));

    return html`<progress max="100" value="${percent}" aria-label="of a step it computes"></progress> ${percent} %`;
}

function deviceRow(device, stepMs) {
    const share = number(device.microbatches);
    const each = number(device.microbatchMs);
    const slow = device.straggler;

    return html`<tr><th scope="row">${device.node}:${device.device}</th><td>${device.kind}</td>
<td class="number">${device.pid}</td><td class="number">${share}</td><td class="number">${ms(each)}</td>
<td>${share !== null && each !== null && stepMs ? shareOfStep((share * each) / stepMs) : '-'}</td>
<td class="words">${slow && html`<b class="bad">a straggler:</b>
${ms(number(slow.microbatchMs))}, the others ${ms(number(slow.othersMs))}`}</td></tr>`;
}

function devices(status, rows) {
    const { median } = times(rows);
    const heads = ['Device', 'Kind', ['Process'], ['Microbatches'], ['Each takes'], 'Computes, of a step', 'Notes'];

    return table('devices', 'Devices', heads, status.devices.map((device) => deviceRow(device, median)), 'It trains on none.');
}

function configurationRow(one, now) {
    const receipt = one.receipt ?? {};
    const cell = (key, say = (x) => x) => html`<td class="number">${receipt[key] === undefined ? '-' : say(receipt[key])}</td>`;

    return html`<tr><th scope="row" class="number">${one.number}</th><td>${String(one.state).toLowerCase()}</td>
<td>${one.cause}</td><td class="number">${receipt.from > 0 && `${receipt.from} → `}${one.devices}</td>
<td class="words">${one.plan}${one.reason && html`<br><small>${one.reason}</small>`}</td>
${cell('step')}${cell('stall_ms', ms)}${cell('ready_ms', ms)}${cell('bytes_moved', bytes)}
${cell('steps_lost')}${cell('samples_repeated')}${cell('samples_skipped')}
<td class="number">${span((now - one.created) / 1000)}</td></tr>`;
}

function configurations(list, now) {
    const heads = [['Number'], 'State', 'Cause', ['Devices'], 'Plan', ['First step'], ['Stall'], ['Ready after'], ['Moved'],
        ['Steps lost'], ['Repeated'], ['Skipped'], ['Age']];

    return table('configurations', 'Configurations, and what each change cost', heads,
        [...list].reverse().map((one) => configurationRow(one, now)), 'It has had none.');
}

function checkpointRow(one, now) {
    return html`<tr><th scope="row" class="number">${one.step}</th><td class="number">${bytes(one.bytes)}</td>
<td class="number">${span((now - one.time) / 1000)}</td><td>${one.node}</td><td class="path">${one.path}</td></tr>`;
}

function checkpoints(list, now) {
    return table('checkpoints', 'Checkpoints', [['Step'], ['Size'], ['Age'], 'Node', 'Path'],
        [...list].reverse().map((one) => checkpointRow(one, now)), 'None is kept.');
}

// seen: {job, steps, width, status, history, configurations, checkpoints, events}; now: unix ms.
export function jobView(seen, now) {
    const { status, history } = seen;

    return html`<p><a href="#">← all jobs</a></p><h1>${status.name} ${phase(status.phase)}</h1>${
        status.reason && html`<p class="reason">${status.reason}</p>`}
<p class="line">${progress(status)} ${progressLine(status)}</p>
${facts(status, history.rows, now)}
${pictures(seen)}
${devices(status, history.rows)}
${configurations(seen.configurations, now)}
${checkpoints(seen.checkpoints, now)}
${events(seen.events, 'Events', false)}`;
}
