// Every view has an address, behind the # of the page's: a bookmark, Back, reload and a link in a chat lead to it. An
// address chooses what is shown and nothing else: no action begins with one.

import { byId, visible } from './dom.js';

const REF = '[0-9a-f]{1,64}';
const views = Object.entries({
  overview: /^$/, topology: /^topology$/, groups: /^dlq$/, messages: /^dlq\/messages$/,
  message: new RegExp(`^dlq/messages/(${REF})$`), operation: new RegExp(`^dlq/operations/(${REF})$`),
});
const paths = { overview: '', topology: 'topology', groups: 'dlq', messages: 'dlq/messages', message: 'dlq/messages/', operation: 'dlq/operations/' };

const SUB = /^subscriptions\/([a-z][a-z0-9-]*)(?:\/|(?=\?|$))/; // before the rest of an address, where subscriptions have names

// placeOf reads an address. What is not known to the page stays among the conditions: the sidecar refuses it, because a
// mistyped condition would otherwise choose too many messages.
export function placeOf(hash) {
  const whole = hash.slice(2);
  const sub = SUB.exec(whole)?.[1] ?? '';
  const [path, ...query] = whole.replace(SUB, '').split('?');
  const [view, pattern] = views.find(([, p]) => p.test(path)) ?? ['unknown', /^/];
  const all = [...new URLSearchParams(query.join('?'))];
  const one = (name) => all.find(([n]) => n === name)?.[1] ?? '';
  return { view, sub, id: pattern.exec(path)[1] ?? '', sort: one('sort'), limit: Number(one('limit')) || 0,
    conditions: all.filter(([name]) => name !== 'sort' && name !== 'limit') };
}

// hrefOf is the address of a place.
export function hrefOf({ view = 'groups', sub = here().sub, id = '', conditions = [], sort, limit }) {
  const query = new URLSearchParams([...conditions, ...(sort ? [['sort', sort]] : []), ...(limit ? [['limit', limit]] : [])]);
  return `#/${sub && `subscriptions/${sub}${paths[view] && '/'}`}${paths[view]}${id}${query.size > 0 ? `?${query}` : ''}`;
}

let entries = 0;
let show = () => {};
let shown = ''; // address of what is shown
const newKey = () => `${performance.timeOrigin} ${++entries}`; // of an entry of the browser's history
const remember = (more) => history.replaceState({ ...history.state, ...more }, '');

export const here = () => placeOf(location.hash);

// scoped is a path of the API for the subscription that the page shows.
export const scoped = (path) => here().sub ? `${path}${path.includes('?') ? '&' : '?'}subscription=${here().sub}` : path;

// navigate goes to an address. carried is what the view shows, in place of the present entry of the history and without
// another read of the queue.
export function navigate(href, carried) {
  remember({ y: scrollY });
  if (carried || href === location.hash) history.replaceState({ key: newKey() }, '', href);
  else history.pushState({ key: newKey() }, '', href);
  arrive({ carried });
}

// arrive shows the place of the address. how.back: an entry of the history is shown again, with how.from shown before.
function arrive(how) {
  const from = shown;
  shown = location.hash;
  show(here(), { ...how, from, key: history.state.key });
}

// settle is for the view, when it is complete: an entry that is shown again has its place on the screen again.
export function settle() {
  if (history.state?.y !== undefined) scrollTo(0, history.state.y);
}

export function startRoute(whenArrived) {
  show = whenArrived;
  history.scrollRestoration = 'manual';
  addEventListener('scrollend', () => remember({ y: scrollY }));
  addEventListener('popstate', () => {
    if (location.hash && !location.hash.startsWith('#/')) return;
    for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close();
    const back = history.state?.key !== undefined;
    if (!back) remember({ key: newKey() });
    arrive({ back });
  });
  addEventListener('click', (e) => {
    const link = e.target.closest('a[href^="#"]');
    if (!link || e.button !== 0 || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return;
    e.preventDefault();
    if (link.classList.contains('skip')) byId('main').focus();
    else navigate(link.getAttribute('href'));
  });
  remember({ key: newKey() });
  arrive({ first: true });
}

const titles = { view: '', state: '', service: '' };

// titled names the page: the view, the state, the service.
export function titled(part) {
  Object.assign(titles, part);
  document.title = [titles.view, titles.state, titles.service].filter(Boolean).map(visible).join(' · ') || 'sidecar';
}
