// Requests to the control listener, and the token they carry. The token lives in this tab only.

import { scoped } from './route.js';

const KEY = 'sidecar.token';

export const session = new EventTarget(); // 'token': one is needed; 'read-only': this one may only read
export const mayWrite = () => !session.readOnly;

let token = sessionStorage.getItem(KEY) ?? '';

export const hasToken = () => token !== '';

export function useToken(value) {
  token = value;
  session.readOnly = false;
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

// Problem is an answer that is none: a problem document, or no answer at all (status 0).
export class Problem extends Error {
  constructor(status, title, detail) {
    const text = detail || (status ? `${status} ${title}` : title);
    super(text.charAt(0).toUpperCase() + text.slice(1));
    this.status = status;
  }
}

const OF_ONE = /^(pause|resume|dlq\/(?!operations))/; // what is for the subscription that the page shows

async function request(method, wanted, body, signal) {
  const path = OF_ONE.test(wanted) ? scoped(wanted) : wanted;
  const headers = {};
  const used = token;
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal, cache: 'no-store', redirect: 'error' });
  } catch (e) {
    if (signal?.aborted) throw e;
    throw new Problem(0, 'The sidecar does not answer.');
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  // Another token may have been given meanwhile. This answer says nothing about that one.
  if (used !== token) throw new Problem(0, 'The token has changed.');
  if (answer.status === 401) session.dispatchEvent(new Event('token'));
  if (answer.status === 403 && token && (method === 'POST' || path.includes('body=true') || path.startsWith('dlq/export'))) {
    session.readOnly = true;
    session.dispatchEvent(new Event('read-only'));
  }
  throw new Problem(answer.status, said.title ?? answer.statusText, said.detail);
}

export const get = async (path, signal) => (await request('GET', path, undefined, signal)).json();
export const post = async (path, body) => (await request('POST', path, body)).json();

// download keeps an answer as a file. A link could not send the token.
export async function download(path, name) {
  const blob = await (await request('GET', path)).blob().catch(() => { throw new Problem(0, 'The connection broke.'); });
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// follow reads the event stream until it ends. Every event is given to onEvent(name, data); a comment only shows that
// the other side lives, and comes as an event without a name. EventSource would not send the token.
export async function follow(onEvent, signal) {
  const answer = await request('GET', 'events', undefined, signal);
  const text = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ''; ;) {
    const { done, value } = await text.read().catch((e) => {
      throw signal.aborted ? e : new Problem(0, 'The connection broke.');
    });
    if (done) return;
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      let name = '';
      let data = '';
      for (const line of block.split(/\r?\n/)) {
        if (line.startsWith('event:')) name = line.slice(6).trim();
        if (line.startsWith('data:')) data += line.slice(5);
      }
      onEvent(name, data && JSON.parse(data));
    }
  }
}
