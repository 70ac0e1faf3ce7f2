// Operations on the queue and how far they are, from the events: also those that were begun elsewhere.

import { get, post } from './api.js';
import { ago, byId, clip, count, el, fill, heading, number, put, row, say, visible } from './dom.js';
import { hrefOf } from './route.js';
import { deadLetterQueue } from './topology.js';

const words = {
  redrive: { runs: 'Redriving', past: 'redriven', noun: 'Redrive' },
  discard: { runs: 'Discarding', past: 'discarded', noun: 'Discard' },
};

const known = new Map(); // id to operation, as last seen
const seen = new Set(); // ids seen of since the stream began
const waiting = new Map(); // id to the resolve functions of those who wait for its end
const goals = new Map(); // id to {expected, what}, of those that were begun here
let panel = null; // {id, …elements} of the operation shown
let live = false; // all operations of before the stream have been seen
let page = null; // {id, facts} of the operation whose address is shown
let listed = ''; // the earlier operations shown
let announced = ''; // what screen readers announced last
let onEnd = () => {};

export function startOperations(whenEnded) {
  onEnd = whenEnded;
}

// ended is for the end of an operation. The end may have been seen of before the answer that began it.
export function ended(id) {
  const o = known.get(id);
  if (o && o.state !== 'running') return Promise.resolve(o);
  return new Promise((resolve) => waiting.set(id, [...(waiting.get(id) ?? []), resolve]));
}

// running is the operation that has the queue, a dry run too.
export const running = () => [...known.values()].find((o) => o.state === 'running');

// goal shows an operation that was begun here.
export function goal(o, expected, what) {
  goals.set(o.id, { expected, what });
  panel = null;
  showOperation(known.get(o.id) ?? o, true);
  byId('operation').querySelector('h3')?.focus();
}

export function showOperation(o, mine) {
  const before = known.get(o.id);
  if (before && before.state !== 'running' && o.state === 'running') return; // seen out of order
  known.set(o.id, o);
  seen.add(o.id);
  const over = o.state !== 'running';
  if (over) {
    for (const resolve of waiting.get(o.id) ?? []) resolve(o);
    waiting.delete(o.id);
  }
  if (page?.id === o.id) describe(o);
  if (o.dry_run) return;
  const news = before?.state === 'running' || mine || live && !before;
  if (!over || panel?.id === o.id || mine) show(o);
  if (over && news) onEnd(o);
  earlier();
}

// A new stream begins with every operation of the sidecar. One that is not among them ended with its process.
export function listen() {
  live = false;
  seen.clear();
}

export function complete() {
  live = true;
  for (const o of known.values()) {
    if (o.state !== 'running' || seen.has(o.id)) continue;
    showOperation({ ...o, state: 'failed', error: 'The sidecar was restarted. What it had not moved is where it was.' });
  }
}

function open(o) {
  const p = panel = {
    id: o.id, title: heading(), bar: el('progress', { 'aria-label': 'Progress' }), counts: el('p', {}), canary: el('p', { class: 'canary' }),
    problem: el('p', { class: 'problem', role: 'alert' }),
  };
  p.cancel = el('button', { type: 'button', 'data-writes': '', click: () => cancel(p) }, 'Cancel');
  p.link = el('a', { class: 'button', href: hrefOf({ view: 'operation', id: o.id }) }, 'Details');
  p.close = el('button', { type: 'button', click: () => {
    panel = null;
    fill(byId('operation'), byId('look'));
    earlier();
  } }, 'Close');
  fill(byId('operation'), undefined, el('div', { class: 'operation' }, p.title, p.bar, p.counts, p.canary, p.problem,
    el('p', { class: 'actions' }, p.cancel, p.link, p.close)));
}

// operationPage is what an operation does and how far it is, at an address of its own.
export function operationPage(id) {
  page = { id, facts: el('div', {}), shown: '' };
  const o = known.get(id);
  const found = (it) => {
    if (!known.has(id)) known.set(id, it);
    if (page?.id === id) describe(known.get(id));
  };
  if (o) found(o);
  else get(`dlq/operations/${id}`).then(found, (e) => page?.id === id && !known.has(id) && fill(page.facts, undefined,
    el('p', { class: 'problem', role: 'alert' }, e.message), el('p', { class: 'hint' }, 'A sidecar keeps its last 20 operations until it is restarted.')));
  return [heading(`Operation ${id}`), page.facts];
}

function describe(o) {
  if (!o.dry_run && panel?.id !== o.id) show(o);
  const key = JSON.stringify([o.state, o.error]);
  if (key === page.shown) return;
  page.shown = key;
  const asked = Object.entries({ ...o.request?.filter, ...o.request }).filter(([name]) => name !== 'filter' && name !== 'confirm');
  fill(page.facts, undefined, el('dl', { class: 'facts full' },
    row('State', visible(o.dry_run ? `count, ${o.state}` : titleOf(o))), row('Started', ago(o.started, true)), o.ended && row('Ended', ago(o.ended, true)),
    row('Asked by', el('bdi', {}, visible(o.by))), asked.map(([name, value]) => row(visible(name.replaceAll('_', ' ')), el('bdi', {}, clip([value].flat().join(', '), 400)))),
    o.error && row('Error', sentence(o.error))));
}

async function cancel(p) {
  p.cancel.ariaBusy = 'true';
  p.problem.textContent = '';
  try {
    showOperation(await post(`dlq/operations/${encodeURIComponent(p.id)}/cancel`));
  } catch (e) {
    p.problem.textContent = e.message;
  } finally {
    p.cancel.ariaBusy = null;
  }
}

function show(o) {
  if (panel?.id !== o.id) open(o);
  const p = panel;
  const running = o.state === 'running';
  const g = o.progress;
  const { expected, what } = goals.get(o.id) ?? { expected: 0 };
  const most = expected || o.request?.limit;
  p.bar.max = Math.max(1, most || g.total);
  p.bar.value = running ? Math.min(p.bar.max, most ? g.done + g.failed : g.scanned) : p.bar.max;
  p.bar.hidden = !running && o.state !== 'succeeded';
  const title = `${titleOf(o)}${o.queue === deadLetterQueue() || !deadLetterQueue() ? '' : ` in ${visible(o.queue)}`}${what ? `: ${what}` : ''}`;
  put(p.title, title);
  byId('operation').firstChild.dataset.tone = running ? 'idle' : o.state === 'succeeded' ? 'good' : 'bad';
  put(p.counts, countsOf(o, expected));
  put(p.canary, canaryOf(o));
  // What the canary came to is said already.
  put(p.problem, !running && o.state === 'failed' && !(g.canary?.bad > 0) ? sentence(o.error) : '');
  if (!running && p.cancel.contains(document.activeElement)) p.title.focus();
  p.cancel.hidden = !running;
  p.close.hidden = running;
  // Not every step: the beginning, the canary, each quarter, the end.
  const quarter = running ? Math.floor(4 * p.bar.value / p.bar.max) : 'end';
  const key = `${o.id} ${o.state} ${quarter} ${p.canary.textContent}`;
  if (key !== announced) say(`${title}. ${p.counts.textContent} ${p.canary.textContent}`);
  announced = key;
}

const sentence = (text = '') => visible(text.charAt(0).toUpperCase() + text.slice(1));

const titleOf = (o) => {
  const w = words[o.kind] ?? { runs: o.kind, noun: o.kind };
  return { running: w.runs, succeeded: `${w.noun} finished`, cancelled: `${w.noun} cancelled`, failed: `${w.noun} stopped` }[o.state] ?? o.state;
};

function countsOf(o, expected) {
  const g = o.progress;
  return [`${number(g.done)}${expected ? ` of ${number(expected)}` : ''} ${words[o.kind]?.past ?? 'done'}`,
    !expected && `read ${number(g.scanned)} of ${number(g.total)}`,
    g.failed > 0 && `${number(g.failed)} failed and ${g.failed === 1 ? 'is' : 'are'} still parked`,
    g.skipped > 0 && `${number(g.skipped)} left alone: another service’s`].filter(Boolean).join('; ') + '.';
}

function canaryOf(o) {
  const c = o.progress.canary;
  if (!c?.sent) return '';
  const sent = `Canary: ${number(c.sent)} sent, ${number(c.good)} good, ${number(c.bad)} bad`;
  if (c.bad > 0) {
    const v = c.last;
    const what = v && v.outcome !== 'ack' ? ` ${v.message_id ? visible(v.message_id) : 'A message'} was not acked but ended in ${visible(v.outcome)}` +
      `${v.status ? `, status ${v.status}` : ''}${v.reason ? ` (${visible(v.reason)})` : ''}.` : '';
    return `${sent}.${what} The rest was not touched.`;
  }
  if (c.done) return `${sent}. The rest ${o.state === 'running' ? 'follows' : 'followed'}.`;
  return o.state === 'running' ? `${sent}. Waiting for their verdicts …` : `${sent}. The rest was not touched.`;
}

function earlier() {
  const over = [...known.values()].filter((o) => !o.dry_run && o.state !== 'running' && o.id !== panel?.id)
    .sort((a, b) => Date.parse(b.started) - Date.parse(a.started)).slice(0, 5);
  byId('earlier').hidden = over.length === 0;
  const key = over.map((o) => o.id + o.state).join();
  if (key === listed) return;
  listed = key;
  fill(byId('earlier-list'), byId('look'), over.map((o) => el('li', {}, el('a', { href: hrefOf({ view: 'operation', id: o.id }) }, titleOf(o)), ' ', ago(o.ended ?? o.started), ': ',
    countsOf(o, 0), ' ', canaryOf(o), ' ', sentence(o.error))));
}
