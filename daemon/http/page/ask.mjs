// SPDX-License-Identifier: Apache-2.0
// What the page asks rubatod for, by docs/rpc.md's methods.  What is seen is a value: it is made anew, never changed.
import { PAGE, empty, merged, wanted } from './history.mjs';

const PATIENCE_MS = 12000; // rubatod answers or hangs up within 10 s
const EVENTS = 1000; // as many as rubatod keeps

// {body, now}: unix ms of rubatod's clock.  An error's `status` is HTTP's, where rubatod has answered.
async function ask(path, query = {}) {
    let reply;
    let body;

    try {
        reply = await fetch(`api/${path}?${new URLSearchParams(query)}`, { signal: AbortSignal.timeout(PATIENCE_MS) });
        body = await reply.json();
    } catch {
        throw new Error('rubatod does not answer');
    }
    if (!reply.ok)
        throw Object.assign(new Error(`rubatod says: ${body.error}`), { status: reply.status });
    return { body, now: Date.parse(reply.headers.get('Date')) || Date.now() };
}

async function items(path, query) {
    return (await ask(path, query)).body.items;
}

// Those that are there, and those that came since.
async function eventsBehind(list, query) {
    const last = list.length ? { after: list[list.length - 1].key } : {};

    return [...list, ...await items('events', { ...query, ...last })].slice(-EVENTS);
}

export async function askAll(seen) {
    const [jobs, nodes, devices, events] = await Promise.all([
        ask('jobs'), items('nodes'), items('devices'), eventsBehind(seen?.events ?? [])]);

    return { seen: { jobs: jobs.body.items, nodes, devices, events }, now: jobs.now, trouble: null };
}

async function rowsBehind(history, status) {
    for (const one of wanted(history, status)) {
        const limit = Math.min(PAGE, one.to - one.after);

        history = merged(history, status, one, (await ask('metrics', { job: status.id, after: one.after, limit })).body);
    }
    return history;
}

async function askStatus(seen, job) {
    try {
        return await ask('status', { job: seen?.status.id ?? job });
    } catch (error) {
        throw error.status === 404 && seen ? new Error('this job was deleted meanwhile') : error;
    }
}

// Without its status there is nothing to show; of all else what cannot be had stays as it was, and is said.
export async function askJob(seen, job) {
    const { body: status, now } = await askStatus(seen, job);
    const query = { job: status.id };
    const parts = {
        history: rowsBehind(seen?.history ?? empty(), status),
        configurations: items('configurations', query),
        checkpoints: items('checkpoints', query),
        events: eventsBehind(seen?.events ?? [], query),
    };
    const fresh = { history: empty(), configurations: [], checkpoints: [], events: [], ...seen, status };
    let trouble = null;

    for (const [name, part] of Object.entries(parts)) {
        try {
            fresh[name] = await part;
        } catch (error) {
            trouble ??= error.message;
        }
    }
    return { seen: fresh, now, trouble };
}
