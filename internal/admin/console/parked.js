// What is parked: groups, the messages of one, and one message. Only an address that names one of them, or a button, reads
// the queue: a read takes it from all other readers while it runs. What an entry of the browser's history has read is
// shown again by Back.

import { get } from './api.js';
import { byId, el, fill, heading, put, say } from './dom.js';
import { pages, request } from './lists.js';
import { operationPage } from './operation.js';
import { here, hrefOf, navigate, settle, titled } from './route.js';
import { showScope } from './subscriptions.js';
import { showTopology } from './topology.js';

const KEPT = 10; // entries of the history of which the page keeps what was read
const kept = new Map(); // key of the entry to what was read
const fixed = { overview: ['', 'main'], topology: ['Topology', 'topology-title'] }; // views without a read: title, focus

let place = here(); // what is shown
let reading = null; // the AbortController of the running read
let unread = false; // the last read of this place has failed
let applied = new Map(); // conditions that the form had from an address

export function startParked() {
  phone.addEventListener('change', arrange);
  byId('look').addEventListener('click', () => pages[place.view] ? read(place, { stay: true }) : navigate(hrefOf({})));
  byId('stop').addEventListener('click', () => reading?.abort());
  byId('changed-look').addEventListener('click', () => read(place, { stay: true }));
  const form = byId('filter');
  form.addEventListener('submit', (e) => {
    e.preventDefault();
    // A search is for the whole queue, also when it begins in a group.
    const given = [...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);
    const one = given.some(([name]) => ['text', 'id', 'correlation-id'].includes(name));
    const view = one || place.view === 'messages' ? 'messages' : 'groups';
    navigate(hrefOf({ view, conditions: given }));
  });
  form.addEventListener('reset', () => place.conditions.length > 0 &&
    navigate(hrefOf({ view: place.view === 'messages' ? 'messages' : 'groups' })));
}

export const isReading = () => reading !== null;

const phone = matchMedia('(max-width: 760px)');

// arrange puts the dead letters before the state where both do not fit: in the overview on a phone.
function arrange() {
  const [parked, state] = [byId('parked'), byId('state')];
  const first = phone.matches && place.view === 'overview';
  if (first === (parked.nextElementSibling === state)) return;
  if (first) parked.after(state);
  else byId('subscriptions').before(state);
}

// showPlace shows a place: it is what the router calls.
export function showPlace(to, how) {
  reading?.abort();
  reading = null;
  [place, unread] = [to, false];
  byId('wait').hidden = byId('changed').hidden = true;
  document.body.dataset.view = to.view;
  showScope();
  showTopology();
  syncForm(to.conditions);
  arrange();
  put(byId('look'), pages[to.view] ? 'Read again' : 'Read the queue');
  byId('look').classList.toggle('primary', !pages[to.view]);
  byId('topology-text').open ||= to.view === 'topology';
  if (pages[to.view]) {
    const known = how.carried ?? (how.back && kept.get(how.key));
    return known ? render(to, known, how) : read(to, how);
  }
  const [title, focus] = fixed[to.view] ?? [];
  const page = to.view === 'operation' ? operationPage(to.id) : title === undefined && [heading('There is no such page'),
    el('p', {}, el('a', { href: hrefOf({ view: 'overview', sub: '' }) }, 'Overview'))];
  fill(byId('view'), undefined, page || []);
  arrived(title ?? byId('view').querySelector('h3').textContent, focus && byId(focus), how);
}

// syncForm writes the conditions of an address into the fields. A field whose condition is the same keeps what was typed.
function syncForm(conditions) {
  const now = new Map(conditions);
  for (const field of byId('filter').querySelectorAll('input')) {
    const wanted = now.get(field.name) ?? '';
    if (wanted !== (applied.get(field.name) ?? '')) field.value = wanted;
  }
  applied = now;
}

// arrived names the page and gives the focus: to the link that was followed before, the order that was chosen, or the
// heading. A page that was just opened keeps it where it is.
function arrived(title, target, how) {
  titled({ view: title });
  const view = byId('view');
  target ??= view.querySelector('h3');
  if (how.back) target = [...view.querySelectorAll('a')].find((a) => a.getAttribute('href') === how.from) ?? target;
  if (how.stay || how.first) {
    if (document.activeElement === document.body && how.stay) target.focus({ preventScroll: true });
  } else if (how.carried) view.querySelector(how.carried.focus)?.focus({ preventScroll: true });
  else {
    if (!how.back) scrollTo(0, 0);
    target.focus({ preventScroll: how.back });
  }
  if (how.back || how.first) settle();
  if (!how.stay) say(title);
}

// resume is for a new token: what was refused is read now.
export const resume = () => unread && read(place, {});

// reload is for the end of an operation. What is being read on the screen is left alone.
export function reload() {
  kept.clear();
  if (place.view !== 'groups' && place.view !== 'messages') byId('changed').hidden = place.view !== 'message';
  else if (getSelection().type === 'Range' && getSelection().containsNode(byId('view'), true)) byId('changed').hidden = false;
  else read(place, { stay: true });
}

async function read(to, how) {
  reading?.abort();
  const mine = reading = new AbortController();
  const { key } = history.state;
  byId('wait').hidden = false;
  byId('changed').hidden = true;
  if (!how.stay) {
    fill(byId('view'), byId('view'));
    say('Reading the queue');
  }
  let data;
  let problem;
  try {
    data = { at: new Date().toISOString(), ...await get(request(to), mine.signal) };
  } catch (e) {
    problem = e;
  }
  if (mine !== reading) return;
  reading = null;
  byId('wait').hidden = true;
  unread = data === undefined;
  if (data) {
    kept.set(key, data);
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
    return render(to, data, how);
  }
  const gone = problem.status === 404 && to.view === 'message';
  fill(byId('view'), undefined, heading(mine.signal.aborted ? 'Reading stopped' : gone ? 'The message is not in the queue'
    : 'The queue could not be read'), !mine.signal.aborted && el('p', { class: 'problem', role: 'alert' }, problem.message),
  el('p', { class: 'actions' }, el('button', { type: 'button', click: () => read(to, {}) }, 'Try again'),
    to.view !== 'groups' && el('a', { class: 'button', href: hrefOf({}) }, 'Groups')));
  arrived(byId('view').querySelector('h3').textContent, null, how);
}

function render(to, data, how) {
  const order = (sort) => {
    const select = document.activeElement?.matches('select');
    const focus = select ? '.order select' : `[data-sort="${sort.replace('-', '')}"]`;
    navigate(hrefOf({ ...to, sort }), { ...data, focus });
  };
  kept.set(history.state.key, data);
  fill(byId('view'), undefined, pages[to.view](to, data, order));
  arrived(byId('view').querySelector('h3').textContent, null, how);
}
