// The subscriptions of a sidecar that have names: which one the page shows, and the overview of all of them.

import { byId, el, fill, number, put, visible } from './dom.js';
import { here, hrefOf } from './route.js';
import { queuesOf } from './topology.js';

let names; // of the subscriptions; empty when there is one without a name, undefined before the first status
let consumes = true; // false with SIDECAR_CONSUME=off: there is neither a queue nor an app
const rows = new Map(); // name to the cells that change

const states = {
  consuming: ['Consuming', 'good'], paused: ['Paused', 'hold'], starting: ['Starting', 'hold'], draining: ['Draining', 'hold'], drained: ['Drained', 'hold'],
};

// narrow returns the status of the subscription that the page shows, in the form of the status of a sidecar. Fields that
// are sums of all subscriptions stay out: a subscription without problems has no such field of its own.
export function narrow(status) {
  const own = status.subscriptions?.find((s) => s.name === here().sub);
  const { version, service, consume, publish, blocked } = status;
  return own ? { ...own, version, service, consume, publish, blocked } : status;
}

// isAll: the page shows several subscriptions.
export const isAll = () => names?.length > 0 && !here().sub;

// noSuch: the address names a subscription that there is not.
export const noSuch = () => names !== undefined && here().sub !== '' && !names.includes(here().sub);

// showSubscriptions shows the overview, and marks what the page is about.
export function showSubscriptions(status, depths) {
  consumes = status.consume !== undefined;
  const list = status.subscriptions ?? [];
  if (list.map((s) => s.name).join() !== names?.join()) draw(list);
  for (const s of list) {
    const cells = rows.get(s.name);
    const [word, tone] = s.findings.length > 0 ? ['Topology does not fit', 'bad']
      : s.redeclared?.length > 0 && s.state === 'consuming' ? ['Messages may be lost', 'bad']
        : (s.problems?.length > 0 || s.pauses.some((p) => p.reason === 'queue')) && s.state === 'consuming' ? ['Consuming, but something fails', 'bad'] : states[s.state] ?? [s.state, ''];
    put(cells.state, word);
    cells.state.dataset.tone = s.state === 'paused' && s.pauses.some((p) => p.reason !== 'operator') ? 'bad' : tone;
    const of = queuesOf(s.name);
    const ready = (kind) => depths.filter((d) => d.kind === kind && of.has(d.queue)).reduce((sum, d) => sum + d.ready, 0);
    const known = depths.some((d) => of.has(d.queue));
    put(cells.main, known ? number(ready('main')) : '–');
    put(cells.dlq, known ? number(ready('dlq')) : '–');
    cells.dlq.dataset.tone = ready('dlq') > 0 ? 'bad' : '';
    put(cells.app, `${number(s.inflight)} of ${number(s.concurrency)}`);
    put(cells.why, [...new Set(s.pauses.map((p) => p.reason))].join(', ') || 'none');
  }
  showScope();
}

function draw(list) {
  names = list.map((s) => s.name);
  rows.clear();
  const cell = (of, name, cls) => rows.get(of)[name] = el('td', { class: cls });
  const body = names.map((name) => {
    rows.set(name, {});
    return el('tr', {}, el('th', { scope: 'row' }, el('a', { class: 'open', href: hrefOf({ view: 'overview', sub: name }) }, visible(name))),
      cell(name, 'state', 'tone'), cell(name, 'main', 'number'), cell(name, 'dlq', 'number tone'), cell(name, 'app', 'number wide'), cell(name, 'why', 'wide'));
  });
  const heads = [['Name'], ['State'], ['In the queue', 'number'], ['Dead letters', 'number'], ['With the app', 'number wide'], ['Pauses', 'wide']];
  fill(byId('subscriptions-table'), undefined, el('table', {}, el('caption', { class: 'unseen' }, 'Subscriptions'),
    el('thead', {}, el('tr', {}, heads.map(([head, cls]) => el('th', { scope: 'col', class: cls }, head)))), el('tbody', {}, body)));
}

// showScope sets what the page is about: one queue, all subscriptions, or one of them.
export function showScope() {
  const { sub, view } = here();
  document.body.dataset.scope = sub ? 'sub' : isAll() ? 'all' : consumes ? 'one' : 'none';
  byId('views-all').hidden = !sub && !isAll();
  byId('views-overview').hidden = isAll();
  put(byId('views-overview'), sub ? visible(sub) : 'Overview');
  byId('views-topology').hidden = isAll();
  for (const [id, to] of [['overview', 'overview'], ['topology', 'topology'], ['dlq', 'groups']]) byId(`views-${id}`).setAttribute('href', hrefOf({ view: to }));
  const current = view === 'overview' ? isAll() ? 'all' : 'overview' : view === 'topology' ? view : view === 'unknown' ? '' : 'dlq';
  for (const link of document.querySelectorAll('#views a')) {
    if (link.id !== `views-${current}`) link.removeAttribute('aria-current');
    else link.setAttribute('aria-current', ['overview', 'topology', 'groups'].includes(view) ? 'page' : 'true');
  }
}
