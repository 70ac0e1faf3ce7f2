// The state: what the sidecar does, why it does not consume, and the three commands.

import { post } from './api.js';
import { ago, byId, count, el, fill, number, put, visible } from './dom.js';
import { here, titled } from './route.js';
import { isAll, narrow } from './subscriptions.js';

// Why nothing is taken: in the title, and what comes of it.
const reasons = {
  app_down: ['the app does not answer', 'It goes on by itself when the app answers.'],
  breaker: ['the app fails everything', 'New messages are tried every few seconds. It goes on when one succeeds.'],
  retry_after: ['the app asked for time', 'It goes on by itself.'],
  operator: ['by an operator', 'It stays so until it is resumed or restarted.'],
  topology: ['a message would be lost', 'It checks again every 15 s.'],
  app_rejects_all: ['the app refuses every message', 'Check the path and the token. One message is tried from time to time. It goes on when one gets another answer.'],
  publishing: ['parking and retrying fail', 'Every message in flight waits for that.'],
  queue: ['the queue cannot be consumed', 'It tries again every few seconds.'],
  order: ['messages wait in order', 'Failed messages and those behind them have every place of SIDECAR_PREFETCH. It goes on when one of them succeeds or is parked.'],
};

const OFF = 'It consumes nothing, because SIDECAR_CONSUME is off.';

// unwell: an app answers its health check, but not with 2xx.
export const unwell = (s) => s.pauses.some((p) => p.reason === 'app_down' && p.detail?.startsWith('the app answered'));

// judge says in a word, a tone and lines what a status means.
function judge(s) {
  if (!s.consume && s.state !== 'publishing') return [s.state === 'drained' ? 'Drained' : 'Draining', 'hold', [OFF]];
  const hand = s.inflight + s.delayed;
  if (s.state === 'drained') return ['Drained', 'hold', ['Nothing is taken any more. It consumes again after a restart of its process.']];
  if (s.state === 'draining') return ['Draining', 'hold', [`Takes no more messages. ${hand} in flight.`]];
  const blocked = ['The broker blocks publishing', 'bad', []];
  if (s.state === 'publishing' && s.blocked) return blocked;
  if (s.state === 'publishing') return ['Publishing', s.problems?.length > 0 ? 'bad' : 'good', [OFF]];
  if (!s.consume.connected) {
    return ['Broker away', 'bad', ['It dials again by itself; no restart is needed. The messages wait in the broker.', s.consume.error && visible(s.consume.error)]];
  }
  const idle = s.subscriptions?.filter((own) => own.state !== 'consuming' || own.findings.length > 0).length;
  if (idle > 0) {
    const none = idle === s.subscriptions.length;
    return [none ? 'Nothing is consumed' : 'Partly paused', none && !byOperator(s) ? 'bad' : 'hold', [`${number(idle)} of ${count(s.subscriptions.length, 'queue')} ${idle === 1 ? 'is' : 'are'} not consumed.`]];
  }
  if (s.findings.length > 0) return ['Topology does not fit', 'bad', ['Nothing is taken, because a message would be lost. It checks again every 15 s.']];
  if (s.state === 'paused') {
    const main = s.pauses.find((p) => p.reason !== 'operator') ?? s.pauses[0];
    return [`Paused: ${unwell(s) && main.reason === 'app_down' ? 'the app says that it is not well' : reasons[main?.reason]?.[0] ?? 'no reason given'}`, !main || main.reason === 'operator' ? 'hold' : 'bad', []];
  }
  if (s.state === 'starting') return ['Starting', 'hold', []];
  if (s.blocked) return blocked;
  if (s.redeclared?.length > 0) return ['Consuming; messages may be lost', 'bad', []];
  const tone = s.problems?.length > 0 || !s.publish.connected || s.pauses.some(ofQueue) ? 'bad' : s.pauses.length > 0 ? 'hold' : 'good';
  return ['Consuming', tone, [s.app.up && tone === 'good' && 'Broker and app are there.']];
}

// A queue that costs its connection is a reason, too, while there is none.
const ofQueue = (p) => p.reason === 'queue';

function pauseLine(p) {
  return el('li', {}, isAll() && `${visible(p.subscription)}: `, el('strong', {}, p.reason), ' since ', ago(p.since, true), p.until && [', until ', ago(p.until, true)],
    `. ${reasons[p.reason]?.[1] ?? ''} `, p.detail && el('span', { class: 'detail' }, visible(p.detail)));
}

// The fix is said once for those in a row that have the same.
function findingLine(f, i, all) {
  return el('li', {}, isAll() && `${visible(f.subscription)}: `, el('strong', {}, visible(f.object)), `: ${visible(f.problem)}.`,
    f.wanted && ` Wanted: ${visible(f.wanted)}.`, f.found && ` Found: ${visible(f.found)}.`, f.reason && ` Reason: ${visible(f.reason)}.`,
    f.fix && f.fix !== all[i + 1]?.fix && el('span', { class: 'fix' }, 'Fix: ', visible(f.fix)));
}

// What was deleted within the last hour, and has been declared again.
function redeclaredLine(r) {
  return el('li', {}, isAll() && `${visible(r.subscription)}: `, el('strong', {}, visible(r.object)), ' was deleted and declared again ', ago(r.at),
    '. Messages may be lost since ', ago(r.lost_since, true), r.last_depth !== undefined ? ['; ', `${number(r.last_depth)} were ready in it at `, ago(r.measured_at, true)]
      : r.kind !== 'exchange' && '; how many were ready in it is unknown',
    r.waiting > 0 && `; it delayed ${number(r.waiting)} that this process had rejected`, '.');
}

let last; // the status shown
let warned = ''; // the warnings shown
let shown = ''; // the lines shown, to leave them alone while they are the same

export function showStatus(s) {
  last = s;
  const [word, tone, said] = judge(s);
  put(byId('service'), visible(s.service));
  byId('queue').parentElement.hidden = !s.consume;
  put(byId('queue'), isAll() ? `${number(s.subscriptions.length)} in all` : visible(s.queue ?? ''));
  put(byId('version'), visible(s.version));
  titled({ state: word, service: [here().sub, s.service].filter(Boolean).join(' · ') });
  byId('state').dataset.tone = tone;
  put(byId('state-title'), word);
  byId('pause').textContent = `${byOperator(s) ? 'Resume' : 'Pause'}${isAll() ? ' all' : ''}`;
  const going = s.state === 'draining' || s.state === 'drained';
  byId('pause').hidden = going || !s.consume;
  byId('drain').hidden = going || here().sub !== '';

  const publish = s.blocked ? ['The broker has a resource alarm', s.blocked.reason && ` (${visible(s.blocked.reason)})`, ' since ', ago(s.blocked.since, true),
    ' and takes no publishes: parking, retrying, redriving and what the app publishes wait. It ends by itself with the alarm.']
    : s.publish.connected || s.consume?.connected === false ? '' : `The connection that publishes is down${s.consume ? ': parking and retrying wait' : ''}.${s.publish.error ? ` ${visible(s.publish.error)}` : ''}`;
  const warnings = JSON.stringify(s.warnings);
  if (warnings !== warned) {
    byId('warnings').hidden = s.warnings.length === 0;
    put(byId('warnings-title'), `${count(s.warnings.length, 'thing')} that may surprise`);
    fill(byId('warnings-list'), undefined, s.warnings.map((w) => el('li', {}, visible(w))));
  }
  warned = warnings;
  const key = JSON.stringify([here().sub, word, said, s.pauses, s.findings, s.problems, s.redeclared, s.blocked ?? publish, s.app]);
  if (key === shown) return;
  shown = key;
  fill(byId('state-lines'), byId('main'), said.filter(Boolean).map((t) => el('li', {}, t)), s.findings.map(findingLine),
    s.problems?.map((p) => el('li', {}, visible(p))), s.redeclared?.map(redeclaredLine),
    going ? [] : s.pauses.filter((p) => (s.consume?.connected || ofQueue(p)) && (p.reason !== 'topology' || s.findings.length === 0)).map(pauseLine), publish && el('li', {}, publish));
}

const byOperator = (s) => s.subscriptions?.length ? s.subscriptions.every(byOperator) : s.pauses.some((p) => p.reason === 'operator');

// lost replaces the state while nothing is received: an old state must not look like the present one.
export function lost(since) {
  if (!last) return put(byId('state-title'), 'No news from the sidecar');
  const word = judge(last)[0];
  shown = '';
  titled({ state: 'No news' });
  byId('state').dataset.tone = 'idle';
  put(byId('state-title'), 'No news from the sidecar');
  fill(byId('state-lines'), byId('main'), el('li', {}, `Last seen: ${word}, `, ago(since), '. All below is of that time.'));
}

async function command(path, button) {
  if (button.ariaBusy === 'true') return false;
  button.ariaBusy = 'true';
  const problem = button.closest('dialog, section').querySelector('.problem');
  problem.textContent = '';
  try {
    showStatus(narrow(await post(path)));
    return true;
  } catch (e) {
    problem.textContent = e.message;
    return false;
  } finally {
    button.ariaBusy = null;
  }
}

export function startState() {
  byId('pause').addEventListener('click', (e) => command(byOperator(last) ? 'resume' : 'pause', e.target));
  byId('drain').addEventListener('click', () => byId('drain-dialog').showModal());
  byId('drain-go').addEventListener('click', async (e) => {
    if (await command('drain', e.target)) byId('drain-dialog').close();
  });
}
