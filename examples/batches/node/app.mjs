#!/usr/bin/env node
// An app behind the sidecar that takes messages in batches. Node 18 or later, no packages.
//
//     usage: node app.mjs [PORT]      default 8080, 0 takes a free one; listens on 127.0.0.1 only
//
// The sidecar needs SIDECAR_BATCH_SIZE, for example 100. To try it: an order without pieces is parked, and for a
// message with the header closed=2 the warehouse is closed for the first two attempts.

import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'

// Delivery is at least once. A real app has both in its database, and one transaction for a batch with a savepoint for
// each message.
const done = new Set()
let reserved = 0

class Failed extends Error {
  constructor(reason, verdict) {
    super(reason)
    this.verdict = verdict
  }
}

// content returns the body. JSON is part of the line, unless it has line feeds; other bodies are text or base64.
function content(item) {
  const body = item.body_base64 === undefined ? item.body : Buffer.from(item.body_base64, 'base64').toString()
  return typeof body === 'string' ? JSON.parse(body) : body
}

// reserve does the work of one message.
async function reserve(item) {
  if (item.message_id && done.has(item.message_id)) return
  const order = content(item)
  if (!(order.pieces > 0)) throw new Failed('an order without pieces', { disposition: 'park' })
  if (item.delivery.attempt <= Number(item.headers?.closed ?? 0)) {
    throw new Failed('the warehouse is closed', { status: 503 }) // and retry_after: 60, if it opens in a minute
  }
  reserved += order.pieces
  done.add(item.message_id)
}

async function handle(req, res) {
  const lines = (await text(req)).split('\n').filter(Boolean) // one line for a message that comes alone
  const results = await Promise.allSettled(lines.map((line) => reserve(JSON.parse(line))))
  // The index is the place in the batch, because an id may be missing or there twice. What is not named is done.
  const failed = results.flatMap(({ reason: err }, index) =>
    err ? [{ index, reason: err.message, ...(err.verdict ?? { status: 500 }) }] : [])
  console.log(`${lines.length} messages, ${failed.length} failed, ${reserved} pieces reserved`)
  res.writeHead(200, { 'Content-Type': 'application/jsonl' })
  res.end(failed.map((verdict) => `${JSON.stringify(verdict)}\n`).join(''))
}

const server = createServer((req, res) => handle(req, res).catch((err) => {
  // The status of the response is for the batch: all of its messages come again, each in a POST of its own.
  res.writeHead(500, { 'Content-Type': 'application/json' }).end(JSON.stringify({ error: err.message }))
}))
server.listen(Number(process.argv[2] ?? 8080), '127.0.0.1', () => {
  console.log(`listening on 127.0.0.1:${server.address().port}`)
})
process.on('SIGTERM', () => server.close()) // finishes what is in flight
