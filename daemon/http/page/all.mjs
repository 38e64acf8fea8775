// SPDX-License-Identifier: Apache-2.0
// All jobs, nodes and events, as markup.  Pure.
import { html } from './html.mjs';
import { number, real, several, span, time } from './human.mjs';

const EVENTS = 30;
const OVER = ['Succeeded', 'Failed', 'Cancelled'];

// A name alone may be that of several jobs.
function jobLink(name, id) {
    return html`<a href="#job=${encodeURIComponent(id ?? name)}">${name}</a>`;
}

export function phase(name) {
    return html`<span class="phase ${String(name).toLowerCase()}">${name}</span>`;
}

export function progress({ step, steps }) {
    return html`<progress max="${steps}" value="${Math.min(step, steps)}" aria-label="steps done"></progress>`;
}

// A table that may be wider than its page, and then is moved within it.  A head in a list of its own is of numbers.
export function table(name, title, heads, rows, nothing) {
    const cells = heads.map((head) => html`<th scope="col"${Array.isArray(head) && html` class="number"`}>${head}</th>`);

    if (!rows.length)
        return html`<section><h2 id="${name}">${title}</h2><p class="nothing">${nothing}</p></section>`;
    return html`<section><h2 id="${name}">${title}</h2>
<div class="wide" role="region" aria-labelledby="${name}" tabindex="0"><table aria-labelledby="${name}">
<thead><tr>${cells}</tr></thead>
<tbody>${rows}</tbody>
</table></div></section>`;
}

function eventRow(event, withJob) {
    return html`<tr><td class="when">${time(event.time)}</td>${withJob && html`<td>${event.job && jobLink(event.job)}</td>`}
<td>${event.node}</td><td>${event.kind}</td><td class="words">${event.text}</td></tr>`;
}

// The newest first.
export function events(list, title, withJob) {
    return table('events', title, ['When (UTC)', ...(withJob ? ['Job'] : []), 'Node', 'What', 'Words'],
        list.slice(-EVENTS).reverse().map((event) => eventRow(event, withJob)), 'Nothing has happened yet.');
}

// Those that go on first, by age; then those that are over, the newest first.
function ordered(jobs) {
    const over = jobs.filter((job) => OVER.includes(job.phase));

    return [...jobs.filter((job) => !OVER.includes(job.phase)), ...over.reverse()];
}

function jobRow(job, now) {
    const devices = OVER.includes(job.phase) ? '-' : `${job.devices} of ${job.want}`;

    return html`<tr><th scope="row">${jobLink(job.name, job.id)}</th><td>${phase(job.phase)}</td>
<td>${progress(job)} <span class="steps">${job.step} / ${job.steps}</span></td>
<td class="number">${real(number(job.loss))}</td><td class="number">${devices}</td>
<td class="number">${span((now - job.created) / 1000)}</td><td class="words">${job.reason}</td></tr>`;
}

// What a device does, and how it does: in words, not by its colour alone.
function deviceItem(device) {
    const ill = device.sick ? 'sick' : device.slow ? 'slow' : null;
    const use = device.job ? jobLink(device.job) : html`<span class="idle">free</span>`;

    return html`<li class="device ${ill ?? (device.job ? 'busy' : 'free')}"><span class="index">${device.device}</span> ${use}${
        ill && html` <b>${ill}:</b> ${device.sick ?? device.slow}`}</li>`;
}

function nodeRow(node, devices) {
    const own = devices.filter((device) => device.node === node.name);
    const used = own.filter((device) => device.job).length;
    const kinds = [...new Set(own.map((device) => device.name ?? device.kind))].join(', ');
    const said = [node.reason, node.deadline && `to be left by ${time(node.deadline)} UTC`].filter(Boolean).join('; ');

    return html`<tr><th scope="row">${node.name}</th>
<td><span class="state ${node.state}">${node.state}</span>${said && html`<br><small>${said}</small>`}</td>
<td class="number">${used} of ${own.length}</td><td>${kinds}</td>
<td><ul class="list">${own.map(deviceItem)}</ul></td><td class="words">${node.missing}</td></tr>`;
}

function summary({ jobs, nodes, devices }) {
    const used = devices.filter((device) => device.job).length;
    const sick = devices.filter((device) => device.sick).length;
    const going = jobs.filter((job) => !OVER.includes(job.phase)).length;
    const over = jobs.length - going;

    return html`<p class="line">${several(going, 'job')} under way${over > 0 && `, ${over} over`} ·
${several(nodes.length, 'node')} · ${used} of ${several(devices.length, 'device')} in use${
        sick > 0 && html` · <b class="bad">${sick} unhealthy</b>`}</p>`;
}

// seen: lists of items {jobs, nodes, devices, events}; now: unix ms.
export function allView(seen, now) {
    return html`<h1>All jobs</h1>${summary(seen)}
${table('jobs', 'Jobs', ['Name', 'Phase', 'Steps', ['Loss'], ['Devices'], ['Age'], 'Reason'],
        ordered(seen.jobs).map((job) => jobRow(job, now)), 'There is no job: rubatoctl submit -f job.yaml hands one in.')}
${table('nodes', 'Nodes', ['Name', 'State', ['In use'], 'Kind', 'Devices and their jobs', 'Notes'],
        seen.nodes.map((node) => nodeRow(node, seen.devices)), 'No node is there.')}
${events(seen.events, 'Newest events', true)}`;
}
