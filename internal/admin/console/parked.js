// What is parked: groups, the messages of one, and one message. Nothing here is fetched by itself: a read takes the queue
// from all other readers while it runs.

import { act } from './act.js';
import { get, mayWrite } from './api.js';
import { ago, byId, clip, count, el, fill, heading, number, put, say, visible } from './dom.js';
import { messageView, why } from './message.js';

const STEPS = [20, 100, 1000]; // messages listed, one step more with each demand

let conditions = []; // [name, value] of the filter
let place = null; // what is shown: {level: 'groups' | 'list' | 'message', group, ref, step}; null before the first read
let reading = null; // the AbortController of the running read

export function startParked() {
  byId('look').addEventListener('click', () => go({ level: 'groups' }));
  const form = byId('filter');
  form.addEventListener('submit', (e) => {
    e.preventDefault();
    apply([...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value));
  });
  form.addEventListener('reset', () => apply([]));
}

function apply(wanted) {
  conditions = wanted;
  put(byId('filter-said'), wanted.length > 0 ? `on: ${wanted.map(([name, value]) => `${name} ${clip(value, 40)}`).join(', ')}` : '');
  if (wanted.length > 0 || place) go({ level: 'groups' }, true);
}

// reload is for the end of an operation. What it has moved can no longer be shown.
export function reload() {
  if (!place) return;
  go(place.level === 'message' ? { level: 'groups' } : place, true);
}

export const isReading = () => reading !== null;

const query = (more) => new URLSearchParams([...conditions, ...more]).toString();

// go shows a place. Focus goes to its heading, unless it should stay where it is.
async function go(to, stay) {
  reading?.abort();
  const mine = reading = new AbortController();
  place = to;
  put(byId('look'), 'Read again');
  byId('look').classList.remove('primary');
  const wait = el('p', { class: 'wait' }, 'Reading the queue … ',
    el('button', { type: 'button', click: () => mine.abort() }, 'Stop reading'));
  fill(byId('view'), byId('look'), wait);
  if (!stay) say('Reading the queue');
  let content;
  try {
    content = await pages[to.level](to, mine.signal);
  } catch (e) {
    if (mine !== reading) return;
    content = [heading(mine.signal.aborted ? 'Reading stopped' : 'The queue could not be read'),
      !mine.signal.aborted && el('p', { class: 'problem', role: 'alert' }, e.message),
      el('p', { class: 'actions' }, el('button', { type: 'button', click: () => go(to) }, 'Try again'),
        to.level !== 'groups' && el('button', { type: 'button', click: () => go({ level: 'groups' }) }, 'Groups'))];
  }
  if (mine !== reading) return;
  reading = null;
  fill(byId('view'), undefined, trail(to), content);
  const title = byId('view').querySelector('h3');
  if (!stay || document.activeElement === document.body) title?.focus();
  if (!stay) say(title?.textContent ?? '');
}

function trail(to) {
  const steps = [];
  const back = (text, target) => el('button', { type: 'button', class: 'small', click: () => go(target) }, text);
  if (to.level !== 'groups') steps.push(el('li', {}, back('Groups', { level: 'groups' })));
  if (to.level === 'message' && to.group) steps.push(el('li', {}, back('Group', { level: 'list', group: to.group })));
  return steps.length > 0 && el('nav', { 'aria-label': 'Way back' }, el('ol', { class: 'trail' }, steps));
}

const pages = {
  async groups(to, signal) {
    const { groups, summary } = await get(`dlq/groups?${query([])}`, signal);
    const filtered = conditions.length > 0;
    const title = groups.length === 0 ? filtered ? 'Nothing matches the filter' : 'Nothing is parked'
      : `${count(groups.reduce((sum, g) => sum + g.count, 0), 'message')} in ${count(groups.length, 'group')}`;
    return [heading(title), covered(summary, groups.length > 0),
      groups.length > 0 && actions(filtered ? { filter: conditions, what: 'what the filter matches' } : { all: true, what: 'everything parked' }),
      groups.length > 0 && rows('Groups of messages that fail in the same way', ['Count', 'Failure', 'Parked'], groups, (g) => ({
        number: number(g.count),
        open: () => go({ level: 'list', group: g, step: 0 }),
        title: clip(why(g), 160),
        more: [g.reason, `key ${g.routing_key || 'none'}`, g.foreign && `${number(g.foreign)} of them another service’s`],
        seen: g.first ? ['first ', ago(g.first), el('br'), 'last ', ago(g.last)] : ['unknown'],
      }))];
  },

  async list(to, signal) {
    const limit = STEPS[to.step ?? 0];
    const { messages, summary } = await get(`dlq/messages?${query([['group', to.group.id], ['limit', limit]])}`, signal);
    const more = messages.length >= limit;
    return [heading(clip(why(to.group), 160)), el('p', { class: 'hint' }, `${more ? `The first ${number(messages.length)} messages` :
      count(messages.length, 'message')} of this group, with routing key `, el('bdi', {}, clip(to.group.routing_key || 'none', 160))),
    covered(summary, more), actions({ filter: [...conditions, ['group', to.group.id]], what: `the group ${clip(why(to.group), 80)}` }),
    rows('Messages of the group, from the head of the queue', ['Place', 'Message', 'Parked'], messages, (m) => ({
      number: number(m.position),
      open: () => go({ level: 'message', group: to.group, ref: m.ref }),
      title: clip(m.message_id || `without id (${m.ref})`, 120),
      more: [clip(why(m), 160), count(m.retry_count, 'retry', 'retries'), m.redrive_count > 0 && `redriven ${count(m.redrive_count, 'time')}`],
      seen: [ago(m.parked_at)],
    })),
    more && to.step < STEPS.length - 1 && el('p', {}, el('button', { type: 'button', click: () => go({ ...to, step: to.step + 1 }) },
      `Show up to ${number(STEPS[to.step + 1])}`))];
  },

  async message(to, signal) {
    const m = await get(`dlq/messages/${encodeURIComponent(to.ref)}`, signal);
    return [heading(clip(m.message_id || 'Message without id', 160)),
      el('p', { class: 'hint' }, `Place ${number(m.position)} in the queue, reference ${visible(m.ref)}`),
      actions({ filter: [['id', m.ref]], what: `the message ${clip(m.message_id || m.ref, 60)}`, one: true }), messageView(m)];
  },
};

// covered says what a read has left out.
const covered = (s, any) => !s.complete && s.scanned < s.total && any &&
  el('p', { class: 'hint' }, `Read ${number(s.scanned)} of ${number(s.total)} messages.`);

function actions(scope) {
  const button = (kind, text, cls) => el('button', { type: 'button', class: cls, 'data-writes': '', disabled: !mayWrite(),
    click: () => act(kind, scope) }, text);
  return el('p', { class: 'actions' }, button('redrive', scope.all ? 'Redrive all …' : 'Redrive …', 'primary'),
    button('discard', scope.all ? 'Discard all …' : 'Discard …', 'danger'));
}

function rows(caption, heads, items, of) {
  return el('table', { class: 'rows' }, el('caption', {}, caption),
    el('thead', {}, el('tr', {}, heads.map((h, i) => el('th', { scope: 'col', class: i === 0 && 'number' }, h)))),
    el('tbody', {}, items.map((item) => {
      const r = of(item);
      const name = el('button', { type: 'button', class: 'open', click: r.open }, el('bdi', {}, r.title));
      const onRow = (e) => e.target.closest('button') || getSelection().toString() || r.open();
      return el('tr', { click: onRow }, el('td', { class: 'number' }, r.number), el('td', {}, name,
        el('small', {}, r.more.filter(Boolean).map((t, i) => [i > 0 && ' · ', el('bdi', {}, clip(t, 160))]))), el('td', { class: 'seen' }, r.seen));
    })));
}
