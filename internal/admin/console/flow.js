// What flows, from the counters in the events: rates are differences, so nothing is lost between two of them.

import { byId, el, number, perSecond, put, svg, visible } from './dom.js';
import { unwell } from './state.js';

const KEEP = 120; // seconds
const NOW = 5; // seconds that the number in large averages over
const verdicts = { ack: 'done', retry: 'failed, again later', requeue: 'not due yet', park: 'given up, kept', discard: 'thrown away' };

const tiles = {};
const facts = {};
let history = []; // {at, settled} of each event, the newest last

export function startFlow() {
  for (const [name, meaning] of Object.entries(verdicts)) {
    const t = tiles[name] = {
      rate: el('strong', {}, '0'), peak: el('span', {}, ''), total: el('span', {}, ''),
      line: svg('polyline', { class: name, points: '' }),
    };
    t.picture = svg('svg', { viewBox: '0 0 120 28', preserveAspectRatio: 'none', role: 'img', 'aria-label': name },
      svg('line', { x1: 0, x2: 120, y1: 27.5, y2: 27.5 }), t.line);
    byId('rates').append(el('li', {}, el('span', { class: 'verdict' }, name, el('small', {}, meaning)),
      el('span', { class: 'rate' }, t.rate, el('span', { class: 'unseen' }, ' per second')), t.picture,
      el('small', { class: 'totals' }, t.total, t.peak)));
  }
  for (const name of ['In the queue', 'Waiting for a retry', 'With the app', 'Delayed here', 'App', 'Broker', 'Retries']) {
    facts[name] = el('dd', {}, '…');
    byId('facts').append(el('div', {}, el('dt', {}, name), facts[name]));
  }
}

export function showFlow(event) {
  const at = Date.parse(event.at) / 1000;
  const settled = event.totals.settled;
  const before = history.at(-1);
  // Counters that went back are those of a new process.
  if (before && (at <= before.at || Object.keys(verdicts).some((v) => (settled[v] ?? 0) < (before.settled[v] ?? 0)))) history = [];
  history.push({ at, settled });
  history = history.filter((h) => h.at >= at - KEEP - 1);
  for (const name of Object.keys(verdicts)) showRate(name, at);
}

function showRate(name, at) {
  const t = tiles[name];
  const rates = [];
  for (let i = 1; i < history.length; i++) {
    const [a, b] = [history[i - 1], history[i]];
    rates.push({ at: b.at, rate: ((b.settled[name] ?? 0) - (a.settled[name] ?? 0)) / (b.at - a.at) });
  }
  const from = history.findLast((h) => h.at <= at - NOW) ?? history[0];
  const total = history.at(-1).settled[name] ?? 0;
  const now = at > from.at ? (total - (from.settled[name] ?? 0)) / (at - from.at) : 0;
  const peak = rates.reduce((most, r) => Math.max(most, r.rate), 0);
  put(t.rate, perSecond(now));
  put(t.peak, peak > 0 ? `peak ${perSecond(peak)}` : '');
  put(t.total, `${number(total)} in all`);
  const points = rates.map((r) => `${(KEEP - at + r.at).toFixed(1)},${(27 - 25 * r.rate / Math.max(peak, 1)).toFixed(1)}`);
  t.line.setAttribute('points', peak > 0 ? points.join(' ') : '');
  t.picture.setAttribute('aria-label', `${name}: now ${perSecond(now)} per second, in the last 2 minutes at most ${perSecond(peak)}`);
}

export function showFacts({ status: s, depths }) {
  const ready = (kind) => {
    const of = depths.filter((d) => d.kind === kind);
    if (of.length === 0) return depths.length === 0 ? 'not known yet' : 'no queue for it';
    return number(of.reduce((sum, d) => sum + d.ready, 0));
  };
  for (const name of Object.keys(facts)) facts[name].parentElement.hidden = name !== 'Broker' && !s.consume;
  const down = [s.consume?.connected === false && 'consuming', !s.publish.connected && 'publishing'].filter(Boolean);
  put(facts.Broker, down.length > 0 ? `no connection for ${down.join(' and ')}` : s.blocked ? 'resource alarm' : 'connected');
  facts.Broker.dataset.tone = down.length > 0 || s.blocked ? 'bad' : '';
  if (!s.consume) return;
  put(facts['In the queue'], ready('main'));
  // Where the service's queue delays messages itself, its depth does not hold them.
  const beside = depths.filter((d) => d.kind === 'retry').reduce((sum, d) => sum + d.ready, 0);
  put(facts['Waiting for a retry'], s.waiting === undefined ? ready('retry') : `${number(beside + s.waiting)} as far as this replica knows`);
  put(facts['With the app'], `${number(s.inflight)} of ${number(s.concurrency)}`);
  put(facts['Delayed here'], number(s.delayed));
  put(facts.App, s.app.up ? 'answers' : unwell(s) ? 'is not well' : 'does not answer');
  facts.App.dataset.tone = s.app.up ? '' : 'bad';
  put(facts.Retries, s.retry_delays.length === 0 ? 'none' : `${number(s.max_retries)}, after ${visible(s.retry_delays.join(', '))}`);
}
