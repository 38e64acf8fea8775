// SPDX-License-Identifier: Apache-2.0
// The pure files of the status page: values in, markup and pictures out.
import assert from 'node:assert/strict';
import test from 'node:test';

import { allView } from '../../daemon/http/page/all.mjs';
import { devicesRibbon, lossChart, timesChart } from '../../daemon/http/page/chart.mjs';
import * as history from '../../daemon/http/page/history.mjs';
import { html } from '../../daemon/http/page/html.mjs';
import * as human from '../../daemon/http/page/human.mjs';
import { jobView } from '../../daemon/http/page/job.mjs';
import { ticks, vertical } from '../../daemon/http/page/scale.mjs';

const EVIL = '<img src=x onerror="alert(1)">\'`&</title></script>\u202e\u0000\u200b';
const COLUMNS = ['step', 'loss', 'step_ms', 'devices', 'configuration', 'eval_loss', 'compute_ms', 'slowest_ms'];

function row(step, more = {}) {
    return { step, loss: 5 / step, ms: 10, devices: 2, configuration: 1, evalLoss: null, compute: 6, slowest: 8, ...more };
}

function rows(n, more = () => ({})) {
    return Array.from({ length: n }, (_, i) => row(i + 1, more(i + 1)));
}

function reply(from, to, configuration = 1) {
    return { columns: COLUMNS, rows: Array.from({ length: to - from + 1 }, (_, i) => [from + i, 1, 10, 2, configuration, null, 6, 8]) };
}

// Tags are closed in their order, attributes quoted, and no number is none.
function assertSound(markup) {
    const text = String(markup);
    const open = [];
    const tags = text.match(/<[^>]*>/g) ?? [];

    assert.doesNotMatch(text, /NaN|undefined|Infinity|\[object/);
    assert.doesNotMatch(text, /style=|onerror="|<img|<script/);
    for (const tag of tags) {
        assert.match(tag, /^<\/?[a-z0-9]+(\s+[a-zA-Z0-9-]+(="[^"<]*")?)*\s*\/?>$/, tag);
        const name = tag.match(/[a-z0-9]+/)[0];

        if (tag.startsWith('</'))
            assert.equal(open.pop(), name);
        else if (!tag.endsWith('/>') && name !== 'br')
            open.push(name);
    }
    assert.deepEqual(open, []);
    return text;
}

function charts(list, width = 800) {
    return [lossChart, devicesRibbon, timesChart].map((chart) => assertSound(chart(list, width)));
}

test('what is put into markup is text', () => {
    assert.equal(String(html`<b title="${EVIL}">${EVIL}</b>`).includes('<img'), false);
    assert.equal(String(html`<b>${['<', html`<i>${'>'}</i>`, 0, null, undefined, false]}</b>`), '<b>&#60;<i>&#62;</i>0</b>');
    assert.equal(String(html`${'a"b\'c`d&'}`), 'a&#34;b&#39;c&#96;d&#38;');
    assert.equal(String(html`${'\u202ex\u0007y\n'}`), '\ufffdx\ufffdy\n');
    assert.equal(String(html`${{ text: '<b>' }}`), '[object Object]'); // JSON does not pass for markup
});

test('numbers are read and written as rubatod and rubatoctl do', () => {
    assert.deepEqual(['nan', 'inf', '-inf', null, 1.5, 'x', undefined, {}].map(human.number), [NaN, Infinity, -Infinity, null, 1.5, null, null, null]);
    assert.deepEqual([0, 1.34021, 1234.56, 0.001, 2e6, NaN, Infinity, null].map(human.real), ['0.0000', '1.3402', '1234.6', '1.000e-3', '2.000e+6', 'nan', 'inf', '-']);
    assert.deepEqual([5, 383, 999.6, 12345, 0].map(human.count), ['5', '383', '1.00 k', '12.3 k', '0']);
    assert.deepEqual([0, 16986931, null].map(human.bytes), ['0 B', '16.2 MiB', '-']);
    assert.deepEqual([0, 59.4, 61, 3900, 90000, -5, NaN].map(human.span), ['0s', '59s', '1m01s', '1h05m', '1d01h', '0s', '-']);
    assert.deepEqual([39.94, 1500, 187000, null].map(human.ms), ['39.9 ms', '1.50 s', '187 s', '-']);
    assert.equal(human.time(0), '1970-01-01 00:00:00');
    assert.equal(human.time(1e300), '-');
});

test('rows come newest first, then page by page', () => {
    const status = { step: 70000, configuration: 1 };
    let seen = history.empty();
    let asked = 0;

    for (let poll = 0; poll < 40; poll++) {
        for (const one of history.wanted(seen, status)) {
            asked++;
            assert.ok(poll > 0 || one.after === 70000 - history.PAGE);
            seen = history.merged(seen, status, one, reply(one.after + 1, Math.min(one.to, 70000, one.after + history.PAGE)));
        }
    }
    assert.equal(seen.rows.length, history.KEEP);
    assert.equal(seen.rows[0].step, 70000 - history.KEEP + 1);
    assert.ok(seen.rows.every((one, i) => one.step === seen.rows[0].step + i));
    assert.equal(asked, 40 + history.KEEP / history.PAGE - 1); // once all is there, only what is new
});

test('another configuration, or a long absence, is asked for anew, and what is there stays meanwhile', () => {
    let seen = { rows: rows(10000), known: 0, configuration: 1 };
    const fallen = { step: 3000, configuration: 2 };
    const [one, ...others] = history.wanted(seen, fallen);

    assert.deepEqual([one.after, one.to, others.length], [3000 - history.PAGE, Infinity, 0]);
    seen = history.merged(seen, fallen, one, reply(one.after + 1, 3000, 2));
    assert.equal(seen.rows.length, 3000);
    assert.deepEqual([seen.rows[0].configuration, seen.rows[2999].configuration], [1, 2]);
    assert.deepEqual(history.wanted(seen, fallen).map(({ after, to }) => [after, to]), [[3000, Infinity], [0, 3000 - history.PAGE]]);
    assert.equal(history.wanted(seen, { step: 90000, configuration: 2 })[0].after, 90000 - history.PAGE);
    assert.deepEqual(history.wanted(history.empty(), { step: 0, configuration: 0 }).map((each) => each.after), [0]);
});

test('times are those of the newest configuration', () => {
    const list = [...rows(100, () => ({ ms: 1000 })), row(101, { configuration: 2, ms: 3 }), row(102, { configuration: 2, ms: null }), row(103, { configuration: 2, ms: 5 })];

    assert.deepEqual(history.times(list), { median: 5, slow: 5 });
    assert.deepEqual(history.times([]), { median: null, slow: null });
    assert.deepEqual([history.rowAt(list, 50).step, history.rowAt(list, 999).step, history.rowAt(list, -1).step, history.rowAt([], 1)], [50, 103, 1, null]);
    assert.deepEqual(history.newest(list, 2).map((one) => one.step), [102, 103]);
});

test('many rows become as many columns as there is room for, and lose none', () => {
    const list = rows(65536);
    const columns = history.columns(list, 363);

    assert.equal(columns.length, 363);
    assert.equal(columns.reduce((n, column) => n + column.rows.length, 0), 65536);
    assert.ok(columns.every((column) => column.rows.every((one) => one.step >= column.from && one.step < column.to)));
    assert.equal(history.columns(list.slice(0, 3), 363).length, 3);
    assert.deepEqual(history.columns([], 363), []);
    for (const text of charts(list))
        assert.ok(text.length < 40000, `${text.length} bytes`);
});

test('pictures of one row, of equal ones and of none that is a number', () => {
    for (const list of [rows(1), rows(2), rows(50, () => ({ loss: 1 })), rows(50, () => ({ loss: NaN })), rows(9, () => ({ loss: Infinity, ms: null })),
        rows(50, (step) => ({ loss: step % 2 ? NaN : -Infinity, evalLoss: NaN, compute: null, slowest: null })),
        rows(3, () => ({ loss: 0, ms: 0, devices: 0 })), rows(50, (step) => ({ loss: 1e300 / step }))])
        for (const width of [280, 800, 4000])
            charts(list, width);
    assert.match(charts(rows(50, (step) => (step === 20 ? { loss: NaN } : {})))[0], /class="broken"[^>]*>!</);
    assert.match(charts(rows(50, (step) => (step === 20 ? { loss: NaN } : {})))[0], /1 step without a loss that is a number/);
});

test('a gap is a gap', () => {
    const list = [...rows(100), ...rows(300).slice(200)];
    const line = (text) => text.match(/<path class="loss" d="([^"]*)"/)[1];

    assert.equal(line(charts(rows(300))[0]).match(/M/g).length, 1);
    assert.equal(line(charts(list)[0]).match(/M/g).length, 2);
});

test('changes of the number of devices and evaluations are marked', () => {
    const [losses, ribbon] = charts(rows(1000, (step) => ({ devices: step < 300 ? 1 : step < 700 ? 3 : 2, evalLoss: step % 100 ? null : 1 })));

    assert.equal(losses.match(/class="change"/g).length, 2);
    assert.match(losses, /1→3/);
    assert.match(losses, /2 devices from step 700/);
    assert.equal(losses.match(/<circle/g).length, 10);
    assert.equal(ribbon.match(/<rect/g).length, 3);
    assert.match(losses, /role="img"[^>]*aria-labelledby="losses-title losses-text"><title id="losses-title">Loss of steps 1 to 1000</);
});

test('scales have round numbers', () => {
    assert.deepEqual(ticks(0, 10, 4), [0, 5, 10]);
    assert.deepEqual(ticks(3, 3, 4), [3]);
    const scale = vertical([0.001, 1000], 0, 100);

    assert.deepEqual([scale.y(0.001), scale.y(1), scale.y(1000)].map(Math.round), [100, 50, 0]);
    assert.ok(scale.ticks.includes(1));
});

const STATUS = { name: EVIL, id: 'a1', phase: 'Running', reason: EVIL, step: 5, steps: 10, loss: 'nan', samples: 50, throughput: 10, evalLoss: 'inf',
    evalAccuracy: null, configuration: 3, want: 3, min: 1, max: 0, summary: EVIL, plan: { summary: EVIL, chosen: EVIL, expectedMs: null },
    checkpoint: { step: 4, time: 0, bytes: 1 }, checkpointFailed: EVIL,
    devices: [{ node: EVIL, device: 0, kind: EVIL, pid: null }, { node: 'n', device: 1, kind: 'cpu', pid: 7, microbatches: 2, microbatchMs: 4,
        straggler: { since: 1, microbatchMs: 4, othersMs: 2 } }] };
const EVENT = { key: 'k', time: 1, job: EVIL, node: EVIL, kind: EVIL, text: EVIL };

test('a job, whatever it is called and says', () => {
    const seen = { job: EVIL, steps: 0, width: 700, status: STATUS, history: { rows: rows(200) }, events: [EVENT], checkpoints: [{ step: 4, bytes: 9, time: 1, node: EVIL, path: EVIL }],
        configurations: [{ number: 3, state: EVIL, cause: EVIL, devices: 2, plan: EVIL, reason: EVIL, created: 1 },
            { number: 1, state: 'RETIRED', cause: 'start', devices: 1, plan: null, created: 1, receipt: { from: 0, step: 1, stall_ms: 0.5, ready_ms: 9, bytes_moved: 0, steps_lost: 0, samples_repeated: 0, samples_skipped: 0 } }] };
    const text = assertSound(jobView(seen, 1000));

    assert.match(text, /step 5\/10 \| loss nan \| 10 samples\/s \| 2 devices \| eta 5s/);
    assert.match(text, /80 %/);
    assert.match(text, /a straggler:/);
    assert.match(text, /href="#job=%3Cimg/);
    assertSound(jobView({ ...seen, history: { rows: [] }, events: [], checkpoints: [], configurations: [], status: { ...STATUS, devices: [], checkpoint: null,
        checkpointFailed: null, reason: null, step: 0, loss: null, throughput: 0, samples: 0, evalLoss: null, configuration: 0, plan: { summary: null, chosen: null, expectedMs: null } } }, 0));
});

test('all of a cluster, and nothing of one', () => {
    const job = { name: EVIL, id: 'a1', phase: 'Running', reason: EVIL, step: 5, steps: 10, loss: 1, devices: 2, want: 3, created: 1 };
    const nodes = [{ name: EVIL, state: 'drained', reason: EVIL, deadline: 5, missing: EVIL }];
    const devices = [{ node: EVIL, device: 0, kind: EVIL, name: EVIL, job: EVIL, sick: EVIL }, { node: EVIL, device: 1, kind: 'cpu', name: null, job: null, slow: 'clocks' }];
    const text = assertSound(allView({ jobs: [{ ...job, phase: 'Failed', id: 'b2' }, job], nodes, devices, events: [EVENT] }, 1000));

    assert.ok(text.indexOf('#job=a1') < text.indexOf('#job=b2'), 'what goes on comes first');
    assert.match(text, /1 of 2 devices in use/);
    assert.match(text, /1 unhealthy/);
    assert.match(text, /<b>sick:<\/b>/);
    assert.match(text, /<b>slow:<\/b> clocks/);
    assert.match(assertSound(allView({ jobs: [], nodes: [], devices: [], events: [] }, 0)), /There is no job/);
});
