// The views of the dead-letter queue: groups, messages, one message, each made of what a read has answered.

import { act } from './act.js';
import { download, mayWrite } from './api.js';
import { ago, byId, bytes, clip, count, el, heading, number, visible } from './dom.js';
import { failure, messageView, why } from './message.js';
import { hrefOf } from './route.js';
import { isAll } from './subscriptions.js';
import { table } from './table.js';
import { deadLetterQueue } from './topology.js';

const LIMITS = [100, 1000]; // messages listed, more on demand

const groupNames = new Map(); // id to text, of the groups that were read

const limitOf = (to) => LIMITS.includes(to.limit) ? to.limit : LIMITS[0];
const query = (...more) => new URLSearchParams(more.flat()).toString();

// request is the path that answers what a place shows.
export function request(to) {
  if (to.view === 'message') return `dlq/messages/${to.id}`;
  return to.view === 'groups' ? `dlq/groups?${query(to.conditions)}` : `dlq/messages?${query(to.conditions, [['limit', limitOf(to)]])}`;
}

const nameOf = ([name, value]) => name === 'group' ? `group ${groupNames.get(value) ?? value}` : name === 'text' ? `“${value}”` : `${name} ${value}`;
const without = (conditions, name) => conditions.filter(([n]) => n !== name);
const time = (text) => Date.parse(text) || '';

export const pages = {
  groups(to, { groups, summary, at }, onSort) {
    for (const g of groups) groupNames.set(g.id, clip(why(g), 80));
    const any = groups.length > 0;
    const filtered = to.conditions.length > 0;
    const title = !any ? filtered ? 'Nothing matches the filter' : 'Nothing is parked'
      : `${count(groups.reduce((sum, g) => sum + g.count, 0), 'message')} in ${count(groups.length, 'group')}`;
    const href = (g) => hrefOf({ view: 'messages', conditions: [...without(to.conditions, 'group'), ['group', g.id]] });
    return [heading(title), covered(summary, any, at), chips(to),
      any && actions(filtered ? { filter: to.conditions, what: 'what the filter matches' } : { all: true, what: 'everything parked' },
        el('a', { class: 'button', href: hrefOf({ view: 'messages', conditions: to.conditions }) }, 'List the messages')),
      any && table({ caption: 'Groups of messages that fail in the same way', name: 'groups', items: groups, sort: to.sort || '-count', onSort, columns: [
        { id: 'count', head: 'Count', down: true, by: (g) => g.count, of: (g) => number(g.count) },
        { id: 'status', head: 'Status', by: (g) => g.status || '', of: (g) => g.status || '–' },
        { id: 'failure', head: 'Failure', by: failure, of: (g) => [link(href(g), failureText(g)),
          small(isAll() && g.subscription, g.reason, `key ${g.routing_key || 'none'}`, g.foreign && `${number(g.foreign)} of them another service’s`)] },
        ...ofColumn(),
        { id: 'reason', head: 'Reason', by: (g) => g.reason, of: (g) => cell(g.reason) },
        { id: 'key', head: 'Routing key', by: (g) => g.routing_key, of: (g) => [cell(g.routing_key), g.foreign > 0 &&
          el('small', {}, `${number(g.foreign)} another service’s`)] },
        { id: 'first', head: 'First', by: (g) => time(g.first), of: (g) => ago(g.first) },
        { id: 'parked', head: 'Last', down: true, by: (g) => time(g.last), of: (g) => ago(g.last) },
      ] })];
  },

  messages(to, { messages, summary, at }, onSort) {
    const limit = limitOf(to);
    const more = messages.length >= limit;
    const id = to.conditions.find(([name]) => name === 'group')?.[1];
    const group = id && (groupNames.get(id) ?? (messages[0] ? clip(why(messages[0]), 80) : `Group ${id}`));
    if (id && messages[0]) groupNames.set(id, group);
    const title = messages.length === 0 ? 'No message matches' : `${more ? 'The first ' : ''}${count(messages.length, 'message')}`;
    const scope = to.conditions.length === 0 ? { all: true, what: 'everything parked' }
      : { filter: to.conditions, what: group ? `the group ${group}` : 'what the filter matches' };
    const href = (m) => hrefOf({ view: 'message', id: m.ref, conditions: to.conditions });
    return [heading(group ? `${group}: ${title}` : title), covered(summary, more, at), chips(to), messages.length > 0 && actions(scope,
      el('a', { class: 'button', href: hrefOf({ conditions: without(to.conditions, 'group') }) }, 'Groups')),
    messages.length > 0 && table({ caption: 'Parked messages', name: 'messages', items: messages, sort: to.sort || 'place', onSort, columns: [
      { id: 'place', head: 'Place', by: (m) => m.position, of: (m) => number(m.position) },
      { id: 'message', head: 'Message', by: (m) => m.message_id, of: (m) => [link(href(m), clip(m.message_id || `without id (${m.ref})`, 120)),
        small(isAll() && m.subscription, why(m), `key ${m.routing_key || 'none'}`, count(m.retry_count, 'retry', 'retries'))] },
      { id: 'status', head: 'Status', by: (m) => m.status || '', of: (m) => m.status || '–' },
      { id: 'failure', head: 'Failure', by: failure, of: (m) => cell(failure(m), m.redrive_count > 0 && ` redriven ${count(m.redrive_count, 'time')}`) },
      ...ofColumn(),
      { id: 'reason', head: 'Reason', by: (m) => m.reason, of: (m) => cell(m.reason) },
      { id: 'key', head: 'Routing key', by: (m) => m.routing_key, of: (m) => cell(m.routing_key) },
      { id: 'retries', head: 'Retries', down: true, by: (m) => m.retry_count, of: (m) => number(m.retry_count) },
      { id: 'size', head: 'Size', down: true, by: (m) => m.size, of: (m) => bytes(m.size) },
      { id: 'parked', head: 'Parked', down: true, by: (m) => time(m.parked_at), of: (m) => ago(m.parked_at) },
    ] }),
    more && limit < LIMITS[1] && el('p', {}, el('a', { class: 'button', href: hrefOf({ ...to, limit: LIMITS[1] }) }, `Show up to ${number(LIMITS[1])}`))];
  },

  message(to, m) {
    const group = to.conditions.some(([name]) => name === 'group') ? to.conditions : [...to.conditions, ['group', m.group]];
    return [el('nav', { 'aria-label': 'Way back' }, el('ol', { class: 'trail' },
      el('li', {}, el('a', { href: hrefOf({ conditions: without(to.conditions, 'group') }) }, 'Groups')),
      el('li', {}, el('a', { href: hrefOf({ view: 'messages', conditions: group }) }, clip(why(m), 60))))),
    heading(clip(m.message_id || 'Message without id', 160)),
    el('p', { class: 'hint' }, `Place ${number(m.position)} in the queue, reference ${visible(m.ref)}. Read `, ago(m.at), '.'),
    messageView(m, actions({ filter: [['id', m.ref]], what: `the message ${clip(m.message_id || m.ref, 60)}`, one: true }))];
  },
};

const link = (href, ...text) => el('a', { class: 'open', href }, el('bdi', {}, text));
const cell = (text, ...more) => el('span', { class: 'cell' }, el('bdi', {}, clip(text || '–', 200)), ...more);
const failureText = (m) => [m.status ? el('span', { class: 'narrow' }, `${m.status} `) : null, clip(failure(m), 200)];
const small = (...texts) => el('small', { class: 'narrow' }, texts.filter(Boolean).map((t, i) => [i > 0 && ' · ', el('bdi', {}, clip(t, 160))]));

// chips are the conditions in force, each with a link to the place without it.
const chips = (to) => to.conditions.length > 0 && el('ul', { class: 'chips', 'aria-label': 'Conditions' }, to.conditions.map((c, i) => el('li', {},
  el('bdi', {}, clip(nameOf(c), 80)), el('a', { href: hrefOf({ ...to, limit: 0, conditions: to.conditions.toSpliced(i, 1) }),
    'aria-label': `Remove ${clip(nameOf(c), 80)}` }, '×'))));

// covered says when the queue was read, and what the read has left out.
const covered = (s, any, at) => el('p', { class: 'hint' }, 'Read ', ago(at), !s.complete && s.scanned < s.total && any &&
  `: ${number(s.scanned)} of ${number(s.total)} messages`, '.');

// ofColumn names the subscription of each line, where there are several.
const ofColumn = () => isAll() ? [{ id: 'of', head: 'Queue', by: (o) => o.subscription ?? '', of: (o) => cell(o.subscription) }] : [];

function actions(scope, ...more) {
  if (isAll()) return el('p', { class: 'actions' }, more, el('span', { class: 'hint' }, 'Redrive, discard and export are on the page of each queue.'));
  const problem = el('span', { class: 'problem', role: 'alert' });
  const button = (text, cls, click) => el('button', { type: 'button', class: cls, 'data-writes': '', disabled: !mayWrite(), click }, text);
  const save = async ({ target }) => {
    problem.textContent = '';
    target.ariaBusy = 'true';
    try {
      await download(`dlq/export?${query(scope.filter ?? [])}`, `${deadLetterQueue()}.jsonl`);
    } catch (e) {
      problem.textContent = `Not exported: ${e.message}`;
    } finally {
      target.ariaBusy = null;
    }
  };
  return el('p', { class: 'actions' }, button(scope.all ? 'Redrive all …' : 'Redrive …', 'primary', () => act('redrive', scope)),
    button(scope.all ? 'Discard all …' : 'Discard …', 'danger', () => act('discard', scope)), button('Export', '', save), more, problem);
}
