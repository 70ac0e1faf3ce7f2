// One parked message in full. Its body is fetched only by an explicit click: it may be private, and readable over a
// shoulder.

import { get } from './api.js';
import { ago, bytes, count, el, long, number, row, visible } from './dom.js';

// failure is the text of a failure, of a message or a group. For either the sidecar chooses the one that says most.
export const failure = (m) => m.failure || typeof m.problem === 'string' && m.problem || (m.status ? `status ${m.status}` : m.reason || 'no reason given');

// why is a failure in a line, with the status.
export const why = (m) => m.status && !failure(m).startsWith('status') ? `${m.status} ${failure(m)}` : failure(m);

// textOf is a property: a string, or an object with the bytes of one that is no UTF-8.
const textOf = (v) => v !== null && typeof v === 'object' && 'base64' in v ? `base64: ${v.base64}` : String(v);

// plain takes the types out of a typed value.
function plain(v) {
  if (v.base64 !== undefined) return `base64: ${v.base64}`;
  if (v.type === 'array') return v.value.map(plain);
  if (v.type === 'table') return Object.fromEntries(Object.entries(v.value).map(([k, e]) => [k, plain(e)]));
  if (v.type === 'decimal') return `${v.value.value}e-${v.value.scale}`;
  if (v.type === 'timestamp') return stamp(v.value);
  return v.value ?? null;
}

function stamp(seconds) {
  const at = new Date(Number(seconds) * 1000);
  return Number.isNaN(at.getTime()) ? String(seconds) : at.toISOString();
}

function valueText(v) {
  const p = plain(v);
  return p === null ? '' : typeof p === 'object' ? JSON.stringify(p) : String(p);
}

const section = (title, ...content) => el('section', {}, el('h4', {}, title), ...content);

// messageView is a message from what one looks for first: why it was parked and what the app answered.
export function messageView(m, actions) {
  const p = m.problem ?? {};
  const texts = [['Problem', p.title], ['Type', p.type], ['Detail', p.detail], ['Said', m.detail], ['Error', m.error]].filter(([, t]) => t);
  return el('div', { class: 'one' }, el('section', { class: 'said' },
    el('p', { class: 'why' }, el('strong', {}, long(m.reason || 'unknown')), ' · ', el('strong', {}, m.status ? `status ${m.status}` : 'no answer'),
      ` · after ${count(m.retry_count, 'retry', 'retries')} · parked `, ago(m.parked_at, true)),
    m.answer && [el('h4', { id: 'answer-title' }, 'The app’s answer'),
      el('pre', { class: 'answer', tabindex: '0', role: 'region', 'aria-labelledby': 'answer-title' }, el('bdi', {}, visible(m.answer)))],
    texts.length > 0 && el('dl', { class: 'facts full' }, texts.map(([name, t]) => row(name, long(t)))), actions),
  el('div', {}, body(m), journey(m.journey), section('Origin', el('dl', { class: 'facts full' },
    row('First published', 'to ', long(m.original_exchange || 'the default exchange'), ' with key ', long(m.routing_key || 'none')),
    row('Parked by', long(m.original_queue || 'unknown'), m.foreign && ' (another service’s: never touched from here)'),
    row('Redriven', m.redrive_count ? count(m.redrive_count, 'time') : 'never')))),
  el('div', {}, section('Properties', properties(m)), section('Headers', headers(m.headers))));
}

function journey(steps) {
  if (steps.length === 0) return null;
  const line = (s) => el('li', {}, 'left ', el('strong', {}, long(s.queue)), ' ', long(s.reason), ' ',
    el('span', {}, s.count === 1 ? 'once' : `${number(s.count)} times`), s.at && ['; first ', ago(s.at, true)],
    el('small', {}, ' came through ', long(s.exchange || 'the default exchange'), s.routing_keys && [' with key ', long(s.routing_keys.join(', ') || 'none')]));
  // The broker keeps the latest first. A journey is distinguished from its beginning.
  return section('Journey', el('ol', { class: 'journey' }, steps.toReversed().map(line)));
}

function properties(m) {
  const all = Object.entries({ ...m.properties, exchange: m.exchange, routing_key: m.key }).filter(([, v]) => v !== '');
  return el('table', { class: 'pairs' }, el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Property'), el('th', { scope: 'col' }, 'Value'))),
    el('tbody', {}, all.map(([name, v]) => el('tr', {}, el('th', { scope: 'row' }, name.replaceAll('_', ' ')),
      el('td', {}, long(textOf(v)))))));
}

function headers(h) {
  const names = Object.keys(h).sort();
  if (names.length === 0) return el('p', {}, 'None.');
  return el('table', { class: 'pairs typed' }, el('thead', {}, el('tr', {}, ['Header', 'Type', 'Value'].map((t) => el('th', { scope: 'col' }, t)))),
    el('tbody', {}, names.map((name) => el('tr', {}, el('th', { scope: 'row' }, long(name)), el('td', {}, h[name].type),
      el('td', { class: 'value' }, long(valueText(h[name])))))));
}

function body(m) {
  const hint = el('p', {}, `${bytes(m.size)}${m.content_type ? `, ${visible(m.content_type)}` : ''}. `);
  const problem = el('p', { class: 'problem', role: 'alert' });
  const show = el('button', { type: 'button', id: 'show-body', click: async () => {
    problem.textContent = '';
    show.ariaBusy = 'true';
    try {
      const full = await get(`dlq/messages/${encodeURIComponent(m.ref)}?body=true`);
      const shown = showBody(full.body);
      show.replaceWith(shown);
      shown.focus();
    } catch (e) {
      problem.textContent = e.status === 403 ? `This token may only read, and bodies are not among that. (${e.message})` : e.message;
    } finally {
      show.ariaBusy = null;
    }
  } }, 'Show body');
  return section('Body', hint, show, problem);
}

function showBody(b) {
  const format = { json: 'JSON, indented', text: 'text', hex: 'bytes', empty: 'empty' }[b.format] ?? b.format;
  return el('div', { class: 'body', tabindex: '-1', 'aria-label': 'Body', role: 'group' },
    el('p', { class: 'hint' }, `Shown as ${format}${b.truncated ? `; only the beginning of ${bytes(b.size)}` : ''}.`),
    el('pre', { tabindex: '0', role: 'region', 'aria-label': 'Body text' }, visible(b.text)));
}
