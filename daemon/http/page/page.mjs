// SPDX-License-Identifier: Apache-2.0
// The page: what it looks at is in its address (#job=NAME), what it shows is asked for every other second while somebody
// sees it.  It changes nothing.
import { allView } from './all.mjs';
import { askAll, askJob } from './ask.mjs';
import { LEFT, RIGHT } from './chart.mjs';
import { rowAt } from './history.mjs';
import { html } from './html.mjs';
import { ms, real, several, time } from './human.mjs';
import { jobView } from './job.mjs';
import { patch } from './patch.mjs';

const EVERY_MS = 2000;
const NARROWEST = 280; // of a picture

const view = document.getElementById('view');
let route = { job: null, steps: 0 };
let seen = null; // of this route; null: nothing yet
let now = 0; // unix ms of rubatod's clock, when it was so
let round = 0; // of asking: replies to an earlier one come too late
let timer = null;

function readRoute() {
    const words = new URLSearchParams(location.hash.slice(1));

    return { job: words.get('job') || null, steps: Math.max(0, Number.parseInt(words.get('steps'), 10) || 0) };
}

// ---- Showing -----------------------------------------------------------------------------------

function markup(text) {
    const fresh = document.createElement('template');

    fresh.innerHTML = String(text);
    return fresh.content;
}

function draw() {
    const width = Math.max(NARROWEST, view.clientWidth);

    patch(view, markup(route.job ? jobView({ ...seen, ...route, width }, now) : allView(seen, now)));
    document.title = route.job ? `${seen.status.name}: ${seen.status.phase} - Rubato` : 'Rubato';
    document.getElementById('clock').textContent = `as of ${time(now)} UTC`;
}

// What is there stays; stale: none of it is known to be so any more.
function tell(trouble, stale) {
    const line = document.getElementById('trouble');
    const words = trouble && stale && seen ? `${trouble}: what is below was so at ${time(now)} UTC` : trouble;

    line.hidden = !words;
    if (line.textContent !== (words ?? ''))
        line.textContent = words ?? '';
    document.body.classList.toggle('stale', stale && seen !== null);
    if (stale && !seen)
        patch(view, markup(html`<p><a href="#">← all jobs</a></p>`));
}

// ---- Asking ------------------------------------------------------------------------------------

async function look() {
    const own = ++round;

    clearTimeout(timer);
    try {
        const answer = await (route.job ? askJob(seen, route.job) : askAll(seen));

        if (own !== round)
            return;
        ({ seen, now } = answer);
        draw();
        tell(answer.trouble, false);
    } catch (error) {
        if (own !== round)
            return;
        tell(error.message, true);
    }
    if (!document.hidden)
        timer = setTimeout(look, EVERY_MS);
}

function follow() {
    const next = readRoute();
    const other = next.job !== route.job;

    route = next;
    if (other) {
        seen = null;
        tell(null, false);
        view.replaceChildren('Asking rubatod…');
        scrollTo(0, 0);
        look();
    } else if (seen) {
        draw();
    }
}

// ---- The pointer -------------------------------------------------------------------------------

function readOut(event) {
    const section = event.target.closest?.('.pictures');

    if (!section || !seen?.history)
        return;
    const box = section.querySelector('svg').getBoundingClientRect();
    const [from, to] = [Number(section.dataset.from), Number(section.dataset.to)];
    const part = Math.min(1, Math.max(0, (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)));
    const row = rowAt(seen.history.rows, Math.round(from + part * (to - from)));
    const cross = section.querySelector('.cross');
    const words = row && [`step ${row.step}: loss ${real(row.loss)}`, row.evalLoss !== null && `evaluation ${real(row.evalLoss)}`,
        several(row.devices, 'device'), `${ms(row.ms)} a step`, row.compute !== null && `${ms(row.compute)} computing`,
        row.slowest !== null && `${ms(row.slowest)} the slowest`, `configuration ${row.configuration}`];

    section.querySelector('.readout').textContent = words ? words.filter(Boolean).join(' | ') : '';
    cross.hidden = false;
    cross.style.left = `${box.left - section.getBoundingClientRect().left + LEFT + part * (box.width - LEFT - RIGHT)}px`;
}

addEventListener('hashchange', follow);
addEventListener('resize', () => seen && draw());
document.addEventListener('visibilitychange', () => (document.hidden ? clearTimeout(timer) : look()));
view.addEventListener('pointermove', readOut);
route = readRoute();
look();
