// The dialog in which people redrive or discard. It counts first, by a dry run, so that the number on the button is what
// will happen.

import { post } from './api.js';
import { byId, count, number, put, visible } from './dom.js';
import { ended, goal } from './operation.js';
import { deadLetterQueue } from './topology.js';

const CANARY = 3;

const texts = {
  redrive: { title: 'Redrive', verb: 'Redrive', none: 'Nothing to redrive' },
  discard: { title: 'Discard', verb: 'Discard', none: 'Nothing to discard' },
};

let kind;
let scope; // {all: true} or {filter: [[name, value], …]}; what says it in words
let counting = ''; // id of the dry run
const touched = new Set(); // fields that were changed by hand
let matched = null; // its result; null while it is not known

// selected is the scope as the API takes it.
function selected() {
  if (scope.all) return { all: true };
  const filter = {};
  for (const [name, value] of scope.filter) (filter[name] ??= []).push(value);
  return { filter };
}

export function act(wanted, on) {
  [kind, scope, matched] = [wanted, on, null];
  const form = byId('act-form');
  form.reset();
  touched.clear();
  restrict();
  for (const part of form.querySelectorAll('[data-for]')) part.hidden = !part.dataset.for.includes(kind);
  form.querySelector('.fields').hidden = on.one ?? false;
  put(byId('act-title'), texts[kind].title);
  put(byId('act-scope'), on.what[0].toUpperCase() + on.what.slice(1));
  put(byId('act-queue'), visible(deadLetterQueue()));
  byId('act-go').className = kind === 'discard' ? 'danger' : 'primary';
  byId('act').showModal();
  byId('act-title').focus();
  countFirst();
}

async function countFirst() {
  problem('');
  matched = null;
  byId('act-again').hidden = true;
  label();
  put(byId('act-count'), 'Counting …');
  try {
    const begun = await post(`dlq/${kind}`, { ...selected(), dry_run: true });
    if (!byId('act').open) return cancel(begun.id);
    counting = begun.id;
    const run = await ended(begun.id);
    if (counting !== begun.id || !byId('act').open) return;
    if (run.state !== 'succeeded') throw new Error(run.error || `counting ${run.state}`);
    const p = run.progress;
    matched = p.matched;
    put(byId('act-count'), `${count(matched, 'message')} of ${number(p.total)} in the queue.` +
      (p.skipped > 0 ? ` ${count(p.skipped, 'more is', 'more are')} another service’s and will stay.` : ''));
    if (kind === 'redrive' && !touched.has('act-canary')) byId('act-canary').value = matched > CANARY ? CANARY : 0;
  } catch (e) {
    put(byId('act-count'), '');
    problem(`Not counted: ${e.message}`);
    byId('act-again').hidden = false;
  }
  counting = '';
  label();
}

// No view waits for a count any more: the queue is wanted back.
const cancel = (id) => post(`dlq/operations/${encodeURIComponent(id)}/cancel`).catch(() => {});

const limit = () => byId('act-limit').value ? Math.max(0, Math.floor(byId('act-limit').valueAsNumber) || 0) : 0;
const expected = () => limit() > 0 ? Math.min(limit(), matched) : matched;

function label() {
  const go = byId('act-go');
  go.disabled = !matched;
  put(go, matched === null ? texts[kind].verb : matched === 0 ? texts[kind].none : `${texts[kind].verb} ${count(expected(), 'message')}`);
}

function problem(text, field) {
  put(byId('act-problem'), text);
  for (const f of byId('act-form').querySelectorAll('input')) f.removeAttribute('aria-invalid');
  if (field) {
    field.setAttribute('aria-invalid', 'true');
    field.focus();
  }
}

// order is the request, or undefined when a field makes no sense: then that is said.
function order() {
  const value = (name) => byId(`act-${name}`).value.trim();
  const wanted = selected();
  for (const f of byId('act-form').querySelectorAll('[data-for] input, #act-limit')) {
    if (!f.closest('[hidden]') && !f.checkValidity()) return problem(`${f.labels[0].textContent}: ${f.validationMessage}`, f);
  }
  if (limit() > 0) wanted.limit = limit();
  if (kind === 'discard') {
    if (value('confirm') !== deadLetterQueue()) return problem(`Type ${visible(deadLetterQueue())} to discard.`, byId('act-confirm'));
    return { ...wanted, confirm: value('confirm') };
  }
  if (value('rate')) wanted.rate = `${value('rate')}/s`;
  if (value('to')) return { ...wanted, to: value('to') };
  if (Number(value('canary')) > 0) wanted.canary = Number(value('canary'));
  if (byId('act-reset').checked) wanted.reset = true;
  return wanted;
}

// restrict: another queue gets the messages as new ones, and sends no verdicts.
function restrict() {
  byId('act-canary').disabled = byId('act-reset').disabled = byId('act-to').value.trim() !== '';
}

async function submit(e) {
  e.preventDefault();
  const go = byId('act-go');
  if (!matched || go.ariaBusy === 'true') return;
  problem('');
  const wanted = order();
  if (!wanted) return;
  go.ariaBusy = 'true';
  try {
    const operation = await post(`dlq/${kind}`, wanted);
    byId('act').close();
    goal(operation, expected(), scope.what);
  } catch (err) {
    problem(err.message);
  } finally {
    go.ariaBusy = null;
  }
}

export function startAct() {
  byId('act-form').addEventListener('submit', submit);
  byId('act-form').addEventListener('input', (e) => {
    touched.add(e.target.id);
    restrict();
    if (matched !== null) label();
  });
  byId('act-again').addEventListener('click', countFirst);
  byId('act').addEventListener('close', () => {
    if (counting) cancel(counting);
    counting = '';
  });
}
