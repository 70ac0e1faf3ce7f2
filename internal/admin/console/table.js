// Tables whose rows lead to a place. They can be sorted by what was read, without another read.

import { el } from './dom.js';

// sorted is the items in the order that sort names: an id of a column, after - when it is descending.
function sorted(items, columns, sort) {
  const by = columns.find((c) => c.by && c.id === sort.replace(/^-/, ''))?.by;
  if (!by) return items;
  const sign = sort.startsWith('-') ? -1 : 1;
  const compare = (a, b) => typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b), 'en', { numeric: true });
  // What has no value comes last, in both directions.
  const rank = (a, b) => (a === '') - (b === '') || sign * compare(a, b);
  return items.map((item) => [by(item), item]).sort(([a], [b]) => rank(a, b)).map(([, item]) => item);
}

// next is the order after a click on a column.
const next = (c, sort) => sort === (c.down ? `-${c.id}` : c.id) ? (c.down ? c.id : `-${c.id}`) : c.down ? `-${c.id}` : c.id;

// table shows items. A column has an id, a head, of(item) with the content, and, if it can be sorted, by(item) with a
// number or a text; down when the largest come first. The first column with a link leads to href(item).
export function table({ caption, columns, items, sort, onSort, name }) {
  const head = (c) => {
    const order = sort === c.id ? 'ascending' : sort === `-${c.id}` ? 'descending' : undefined;
    return el('th', { scope: 'col', class: c.id, 'aria-sort': order }, c.by ?
      el('button', { type: 'button', class: 'sort', 'data-sort': c.id, click: () => onSort(next(c, sort)) }, c.head) : c.head);
  };
  const row = (item) => el('tr', { click: follow }, columns.map((c) => el('td', { class: c.id }, c.of(item))));
  const orders = columns.filter((c) => c.by).flatMap((c) => (c.down ? [`-${c.id}`, c.id] : [c.id, `-${c.id}`])
    .map((o) => el('option', { value: o, selected: o === sort }, `${c.head}, ${o.startsWith('-') ? 'descending' : 'ascending'}`)));
  const choose = el('select', { change: () => onSort(choose.value) }, orders);
  return [el('p', { class: 'narrow order' }, el('label', {}, 'Order ', choose)),
    el('table', { class: `rows ${name}` }, el('caption', { class: 'unseen' }, caption), el('thead', {}, el('tr', {}, columns.map(head))),
      el('tbody', {}, sorted(items, columns, sort).map(row)))];
}

// follow makes the whole row a target for the mouse, except while text is selected.
function follow(e) {
  if (!e.target.closest('a, button') && !getSelection().toString()) e.currentTarget.querySelector('a')?.click();
}
