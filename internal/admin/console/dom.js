// Elements, and words for what is in them. Whatever the server says becomes text or a harmless attribute, never markup:
// a message may hold anything.

const SVG = 'http://www.w3.org/2000/svg';

export const byId = (id) => document.getElementById(id);

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false && c !== ''));
  return element;
}

// el makes an element: attributes, listeners where the value is a function, and children that are nodes or text.
export const el = (name, attributes, ...children) => build(document.createElement(name), attributes, children);
export const svg = (name, attributes, ...children) => build(document.createElementNS(SVG, name), attributes, children);

// put writes text only when it changes, so that screen readers announce changes only.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// fill replaces the children. Focus that was inside goes to fallback, rather than to the top of the page.
export function fill(element, fallback, ...children) {
  const had = element.contains(document.activeElement);
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (had) fallback?.focus();
}

// Characters that would hide, or turn round, the text beside them.
const odd = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

// visible shows such characters by their number. Line ends and tabs stay.
export const visible = (text) =>
  String(text).replace(odd, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`);

export function clip(text, limit) {
  const all = [...visible(text)];
  return all.length > limit ? all.slice(0, limit - 1).join('') + '…' : all.join('');
}

// middle cuts a long name in the middle.
export function middle(text, limit) {
  const all = [...visible(text)];
  const head = Math.ceil((limit - 1) / 2);
  return all.length > limit ? all.slice(0, head).join('') + '…' + all.slice(all.length - (limit - 1 - head)).join('') : all.join('');
}

const SHOWN = 400;

// long shows a text of any length: the beginning, and the rest on demand.
export function long(text) {
  const all = visible(text);
  if (all.length <= SHOWN) return el('bdi', {}, all);
  const shown = el('bdi', {}, all.slice(0, SHOWN) + '…');
  const more = el('button', { type: 'button', class: 'small', click: () => {
    shown.textContent = all;
    shown.tabIndex = -1;
    shown.focus();
    more.remove();
  } }, `Show all ${number(all.length)} characters`);
  return el('span', {}, shown, ' ', more);
}

const integers = new Intl.NumberFormat('en');
export const number = (n) => integers.format(n ?? 0);
export const count = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`;
export const bytes = (n) => n < 1024 ? count(n, 'byte') : n < 1 << 20 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`;
export const perSecond = (r) => r === 0 ? '0' : r < 0.095 ? '<0.1' : r < 9.95 ? r.toFixed(1) : number(Math.round(r));

function age(from, to) {
  const s = Math.max(0, Math.round((to - from) / 1000));
  for (const [unit, size] of [['d', 86400], ['h', 3600], ['min', 60]]) if (s >= 2 * size) return `${Math.floor(s / size)} ${unit}`;
  return `${s} s`;
}

const utc = (at) => at.toISOString().slice(0, 19).replace('T', ' ') + ' UTC';

// ago is a time element that ticks: how long it is since. exact adds the time itself, which the title has in any case.
export function ago(text, exact) {
  const at = new Date(text);
  if (!text || Number.isNaN(at.getTime())) return el('span', {}, 'unknown');
  return el('span', {}, exact && utc(at) + ', ', el('time', { datetime: at.toISOString(), title: utc(at) }, since(at)));
}

const since = (at) => {
  const now = Date.now();
  return at > now ? `in ${age(now, at)}` : `${age(at, now)} ago`;
};

// tick renews what the times say, except inside a text that is selected.
export function tick() {
  const selection = getSelection();
  for (const t of document.querySelectorAll('time')) {
    if (selection.type !== 'Range' || !selection.containsNode(t, true)) put(t, since(new Date(t.dateTime)));
  }
}

// say announces to screen readers something that is visible elsewhere.
export const say = (text) => put(byId('said'), text);

// heading is what focus goes to when a view has changed.
export const heading = (...text) => el('h3', { tabindex: '-1' }, ...text);

export const row = (term, ...value) => el('div', {}, el('dt', {}, term), el('dd', {}, ...value));
