// The console: one stream of events, and what people ask for. Nothing is polled.

import { startAct } from './console/act.js';
import { follow, hasToken, Problem, session, useToken } from './console/api.js';
import { byId, number, put, tick } from './console/dom.js';
import { showFacts, showFlow, startFlow } from './console/flow.js';
import { complete, listen, running, showOperation, startOperations } from './console/operation.js';
import { isReading, reload, resume, showPlace, startParked } from './console/parked.js';
import { here, startRoute } from './console/route.js';
import { lost, showStatus, startState } from './console/state.js';
import { isAll, narrow, noSuch, showSubscriptions } from './console/subscriptions.js';
import { deadLetterQueue, hasTopology, loadTopology, queuesOf, showDepths, startTopology } from './console/topology.js';

const STALE = 5; // seconds without an event
const DEAD = 20; // seconds without anything: the connection is taken for lost. A comment comes every 15 s
const LONGEST = 15; // seconds between two attempts
const HIDDEN = 5 * 60; // seconds that a hidden page keeps its stream: the sidecar serves a few only
const OTHER_TOKEN = 'another token';
const HIDDEN_PAGE = 'page hidden';

const link = { stream: null, seen: 0, flow: 0, wake: () => {}, next: 0, up: false };

function onEvent(name, data) {
  link.seen = Date.now();
  if (name === 'flow') {
    link.flow = link.seen;
    if (!link.up) complete();
    link.up = true;
    showLink();
    latest = data;
    showFlow(data);
    showAll();
    if (!hasTopology()) loadTopology();
  }
  if (name === 'operation') showOperation(data);
}

let latest; // event of the flow

// showAll shows the latest state, of the subscription that the page is about.
function showAll() {
  if (!latest) return;
  const all = [...new Map(latest.depths.map((d) => [d.queue, d])).values()]; // subscriptions may share a queue
  const of = here().sub && queuesOf(here().sub);
  const own = all.filter((d) => !of || of.has(d.queue)).map((d) => d.queue === deadLetterQueue() ? { ...d, ready: parkedNow(d.ready) } : d);
  const status = narrow(latest.status);
  showSubscriptions(latest.status, all);
  if (noSuch() && document.body.dataset.view !== 'unknown') showPlace({ ...here(), view: 'unknown' }, {});
  showStatus(status);
  showFacts({ status, depths: own });
  showDepths(own);
  showDepth(own);
}

const MEASURED = 10; // seconds after which a depth is surely newer than what has ended before

let parked = 0;
let heldUntil = 0;

let parkedIn = ''; // the queue that they are in

const leftBy = (o) => o.progress.total - (o.dry_run ? 0 : o.progress.done);

// What an operation or a read holds is parked still, although the broker does not count it as ready.
function parkedNow(ready) {
  if (parkedIn !== deadLetterQueue()) [parked, heldUntil, parkedIn] = [0, 0, deadLetterQueue()];
  const busy = running();
  const o = busy?.queue === deadLetterQueue() ? busy : undefined;
  const held = o?.progress.total > 0 || isReading();
  if (held) heldUntil = Date.now() + MEASURED * 1000;
  if (o?.progress.total > 0) parked = Math.max(ready, leftBy(o));
  else parked = Date.now() < heldUntil ? Math.max(ready, parked) : ready;
  return parked;
}

function showDepth(depths) {
  const parks = depths.filter((q) => q.kind === 'dlq');
  const d = parks.length > 0 && { ready: parks.reduce((sum, q) => sum + q.ready, 0) };
  const none = hasTopology() && !deadLetterQueue() && !isAll() && !noSuch();
  byId('reading').hidden = none;
  put(byId('depth'), none ? 'This topology has no dead-letter queue: what is given up is discarded.' : d ? `${number(d.ready)} parked` : '');
  put(byId('views-depth'), d ? number(d.ready) : '');
  byId('parked').dataset.tone = byId('views').dataset.tone = d?.ready > 0 ? 'bad' : '';
}

// showLink says how fresh the page is.
function showLink(problem) {
  const quiet = (Date.now() - link.flow) / 1000;
  const [word, tone] = !link.up ? ['Disconnected', 'bad'] : quiet > STALE ? ['Stale', 'hold'] : ['Live', 'good'];
  byId('link').dataset.tone = tone;
  put(byId('link-word'), word);
  byId('link-now').hidden = link.up;
  if (problem !== undefined) link.problem = problem;
  const left = Math.max(0, Math.ceil((link.next - Date.now()) / 1000));
  put(byId('link-more'), !link.up ? `${link.problem ?? ''} Again in ${left} s.` : quiet > STALE ? `nothing new for ${Math.round(quiet)} s` : '');
}

async function stayConnected() {
  for (let pause = 1; ; pause = Math.min(LONGEST, 2 * pause)) {
    const stream = link.stream = new AbortController();
    link.seen = Date.now();
    listen();
    let problem = '';
    try {
      await follow(onEvent, stream.signal);
    } catch (e) {
      problem = e.status ? e.message : '';
      if (!(e instanceof Problem) && !stream.signal.aborted) console.error(e);
      const { reason } = stream.signal;
      if (e.status === 401 || reason === HIDDEN_PAGE) await new Promise((resolve) => { link.wake = resolve; });
      if (e.status === 401 || reason === HIDDEN_PAGE || reason === OTHER_TOKEN) {
        link.up = false;
        pause = 0.5;
        continue;
      }
    }
    if (link.up) {
      pause = 1;
      lost(new Date(link.flow).toISOString());
    }
    link.up = false;
    link.next = Date.now() + pause * 1000;
    showLink(problem);
    await new Promise((resolve) => {
      link.wake = resolve;
      setTimeout(resolve, pause * 1000);
    });
  }
}

const suspended = []; // dialogs that wait for a token

// A token is asked for where the page was; what it showed stays hidden until it is given.
function askForToken() {
  const asked = !byId('token-form').hidden;
  put(byId('token-error'), hasToken() ? 'The sidecar refuses this token.' : '');
  // A dialog is shown again, with what was typed, when the token is there.
  for (const dialog of document.querySelectorAll('dialog[open]')) {
    suspended.push(dialog);
    dialog.close();
  }
  byId('content').hidden = byId('views').hidden = true;
  byId('token-form').hidden = false;
  if (!asked || hasToken()) byId('token').focus();
}

function startToken() {
  session.addEventListener('token', askForToken);
  session.addEventListener('read-only', () => {
    byId('read-only').hidden = false;
    for (const b of document.querySelectorAll('[data-writes]')) b.disabled = true;
    if (document.activeElement === document.body || document.activeElement?.disabled) byId('read-only').focus();
  });
  byId('token-form').addEventListener('submit', (e) => {
    e.preventDefault();
    useToken(byId('token').value.trim());
    byId('token').value = '';
    byId('token-form').hidden = byId('read-only').hidden = true;
    byId('content').hidden = byId('views').hidden = byId('forget').hidden = false;
    for (const b of document.querySelectorAll('[data-writes]')) b.disabled = false;
    byId('main').focus({ preventScroll: true });
    for (const dialog of suspended.splice(0)) dialog.showModal();
    resume();
    link.stream.abort(OTHER_TOKEN);
    link.wake();
  });
  const forget = () => {
    useToken('');
    byId('forget').hidden = true;
    askForToken();
    link.stream.abort(OTHER_TOKEN);
  };
  byId('forget').addEventListener('click', forget);
  byId('other-token').addEventListener('click', forget);
  byId('forget').hidden = !hasToken();
}

for (const b of document.querySelectorAll('[data-close]')) b.addEventListener('click', () => b.closest('dialog').close());
document.addEventListener('visibilitychange', () => {
  clearTimeout(link.sleep);
  if (document.hidden) link.sleep = setTimeout(() => link.stream.abort(HIDDEN_PAGE), HIDDEN * 1000);
  else link.wake();
});
byId('link-now').addEventListener('click', () => link.wake());
startFlow();
startTopology();
startState();
startParked();
startAct();
startOperations((o) => {
  if (o.queue === deadLetterQueue()) parked = leftBy(o);
  if (o.kind !== 'redrive' || o.progress.done > 0) reload();
});
startToken();
startRoute((to, how) => {
  showPlace(to, how);
  showAll();
});
setInterval(() => {
  tick();
  showLink();
  if (link.up && link.stream.signal.reason !== HIDDEN_PAGE && Date.now() - link.seen > DEAD * 1000) link.stream.abort();
}, 1000);
stayConnected();
