// The topology as a drawing, and as tables for those who do not see it. Depths come with the events.

import { get } from './api.js';
import { byId, el, fill, middle, number, put, svg, visible } from './dom.js';
import { here } from './route.js';

const HIGH = 44; // of a box, in CSS pixels, as all below
const GAP = 12;
const INDENT = 22;
const LANES = 26; // to the right, for the ways back
const MOST = 4; // exchanges drawn; the tables have all

let plans; // as GET /topology answers: of each subscription
let plan; // the one that is shown; undefined for all
let depths = new Map(); // queue to {kind, ready}
let shownDepths = []; // [queue, element]

export async function loadTopology() {
  try {
    const answer = await get('topology');
    plans = answer.subscriptions ?? [answer];
  } catch (e) {
    put(byId('topology-problem'), e.message);
    return;
  }
  put(byId('topology-problem'), '');
  showTopology();
}

// showTopology shows the topology of the subscription that the page is about.
export function showTopology() {
  const of = plans?.find((p) => (p.subscription ?? '') === here().sub);
  if (of === plan) return;
  plan = of;
  shownDepths = [];
  byId('topology-text').hidden = !plan;
  if (!plan) return fill(byId('drawing'));
  put(byId('preset'), visible(plan.preset));
  tables();
  draw();
}

export const hasTopology = () => plans !== undefined;
// queuesOf are the names of the queues of a subscription.
export const queuesOf = (sub) => new Set(plans?.find((p) => p.subscription === sub)?.queues.map((q) => q.name));
export const deadLetterQueue = () => plan?.park?.queue ?? '';

export function showDepths(list) {
  depths = new Map(list.map((d) => [d.queue, d]));
  for (const [queue, element] of shownDepths) put(element, depth(queue));
}

const depth = (queue) => depths.has(queue) ? number(depths.get(queue).ready) : '–';

function live(queue, element) {
  shownDepths.push([queue, element]);
  put(element, depth(queue));
  return element;
}

export function startTopology() {
  let width = 0;
  new ResizeObserver(([entry]) => {
    if (!plan || Math.abs(entry.contentRect.width - width) < 4) return;
    width = entry.contentRect.width;
    draw();
  }).observe(byId('drawing'));
}

// delayed says how long messages wait in each queue; the queue that delays them itself has the shortest and the longest delay.
function delayed() {
  const all = new Map();
  for (const w of plan.waits) all.set(w.queue, all.has(w.queue) ? `${all.get(w.queue)} to ${w.delay}` : w.delay);
  return all;
}

// boxes lists what is drawn, from top to bottom, each with what it hangs on.
function boxes() {
  const list = [];
  const add = (box) => list[list.push(box) - 1];
  const typeOf = (name) => plan.exchanges.find((x) => x.name === name)?.type;
  const exchange = (name, kind, rest) => ({ kind: 'exchange', name, caption: [kind, typeOf(name), rest].filter(Boolean).join(' · ') });

  const ways = new Set([plan.park?.exchange, ...plan.waits.map((w) => w.exchange)]);
  const sources = [...new Set(plan.bindings.filter((b) => b.queue === plan.queue).map((b) => b.exchange))];
  const entries = sources.filter((s) => !ways.has(s));
  for (const name of (entries.length > 0 ? entries : sources).slice(0, MOST)) {
    const keys = plan.bindings.filter((b) => b.queue === plan.queue && b.exchange === name && b.key).map((b) => b.key);
    add({ ...exchange(name, 'exchange', keys.length > 0 && `key ${keys.join(', ')}`), indent: 0, into: true });
  }
  const own = delayed().get(plan.queue);
  const caption = own ? `queue · retries wait in it, ${own}` : 'queue';
  const main = add({ kind: 'queue main', name: plan.queue, caption, queue: plan.queue, indent: 0 });
  const within = new Map();
  const under = (name, kind) => {
    if (!name) return main;
    if (!within.has(name)) within.set(name, add({ ...exchange(name, kind), indent: 1, parent: main }));
    return within.get(name);
  };
  for (const w of plan.waits.filter((w) => w.queue !== plan.queue)) {
    const parent = under(w.exchange, 'retry exchange');
    add({ kind: 'queue retry', name: w.queue, caption: `retry queue · waits ${w.delay}`, queue: w.queue,
      indent: parent.indent + 1, parent, back: main, lane: 'wait' });
  }
  if (plan.park?.queue) {
    const parent = under(plan.park.exchange, 'dead-letter exchange');
    const back = list.find((b) => b.queue === plan.redrive?.queue) ?? list.find((b) => b.name === plan.redrive?.exchange) ?? main;
    add({ kind: 'queue dlq', name: plan.park.queue, caption: 'dead-letter queue', queue: plan.park.queue,
      indent: parent.indent + 1, parent, back, lane: 'redrive' });
  }
  return list;
}

function draw() {
  const width = Math.max(260, Math.floor(byId('drawing').clientWidth));
  const list = boxes();
  list.forEach((box, i) => Object.assign(box, { x: 1 + box.indent * INDENT, y: 1 + i * (HIGH + GAP), middle: 1 + i * (HIGH + GAP) + HIGH / 2 }));
  const right = width - LANES;
  shownDepths = shownDepths.filter(([, e]) => !(e instanceof SVGElement));
  const said = `Exchanges lead to the queue ${visible(plan.queue)}; from there messages go to the app, to the retry queues and back, ` +
    'or to the dead-letter queue. The tables below say it in full.';
  const picture = svg('svg', { width, height: list.length * (HIGH + GAP), role: 'img', 'aria-label': said }, arrowHead(),
    list.flatMap((box) => lines(box, right, list)), list.map((box) => drawn(box, right)));
  const legend = el('p', { class: 'hint' }, 'On the right, what returns: solid after its wait, dashed when it is redriven.');
  fill(byId('drawing'), undefined, picture, list.some((b) => b.back) && legend);
  for (const text of picture.querySelectorAll('text[data-room]')) shorten(text);
}

// shorten takes from the middle of a name as much as it must to fit its box.
function shorten(text) {
  const all = text.textContent;
  for (let n = all.length; n > 8 && text.getComputedTextLength() > Number(text.dataset.room); n--) text.textContent = middle(all, n - 1);
}

const arrowHead = () => svg('defs', {}, svg('marker', { id: 'arrow', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: 'auto' },
  svg('path', { d: 'M0 0 8 4 0 8z' })));

// lines are the way to a box, and its way back on a lane of its own.
function lines(box, right, list) {
  const way = (kind, d) => svg('path', { class: kind, d, 'marker-end': 'url(#arrow)' });
  const all = [];
  if (box.into) {
    const main = list.find((b) => b.queue === plan.queue);
    all.push(way('way', `M${box.x + 12} ${box.y + HIGH}V${main.y}`));
  }
  if (box.parent) all.push(way('way', `M${box.parent.x + 12} ${box.parent.y + HIGH}V${box.middle}H${box.x}`));
  if (box.back) {
    const lane = right + (box.lane === 'redrive' ? 20 : 10);
    const to = box.back.middle + (box.lane === 'redrive' ? -8 : 8);
    all.push(way(`way ${box.lane}`, `M${right} ${box.middle}H${lane}V${to}H${right + 1}`));
  }
  return all;
}

function drawn(box, right) {
  const wide = right - box.x;
  const room = wide - (box.queue ? 90 : 20);
  return svg('g', { class: `box ${box.kind}` }, svg('title', {}, visible(box.name)),
    svg('rect', { x: box.x, y: box.y, width: wide, height: HIGH, rx: 6 }),
    svg('text', { class: 'caption', 'data-room': room, x: box.x + 10, y: box.y + 16 }, middle(box.caption, 120)),
    svg('text', { 'data-room': room, x: box.x + 10, y: box.y + 34 }, middle(box.name, 120)),
    box.queue && svg('text', { class: 'caption', x: right - 10, y: box.y + 16, 'text-anchor': 'end' }, 'messages'),
    box.queue && live(box.queue, svg('text', { class: 'depth', x: right - 10, y: box.y + 35, 'text-anchor': 'end' })));
}

function table(caption, heads, rows) {
  return el('table', {}, el('caption', {}, caption), el('thead', {}, el('tr', {}, heads.map((h) => el('th', { scope: 'col' }, h)))),
    el('tbody', {}, rows.map((cells) => el('tr', {}, cells.map((c) => c instanceof Node ? c : el('td', {}, visible(c)))))));
}

function tables() {
  const waits = delayed();
  const is = (o, ...words) => [...words, o.shared && 'shared with other services'].filter(Boolean).join(', ');
  const kinds = { main: 'the service’s queue', retry: 'retry queue', dlq: 'dead-letter queue' };
  fill(byId('topology-tables'), undefined,
    table('Queues', ['Name', 'Is', 'Messages'], plan.queues.map((q) =>
      [q.name, is(q, kinds[q.kind] ?? q.kind, waits.has(q.name) && `waits ${waits.get(q.name)}`), live(q.name, el('td', { class: 'number' }))])),
    table('Exchanges', ['Name', 'Is'], plan.exchanges.map((x) => [x.name, is(x, x.type || 'another’s')])),
    table('Bindings', ['Exchange', 'Key', 'Queue'], plan.bindings.map((b) => [b.exchange, b.key || 'none', b.queue])));
}
