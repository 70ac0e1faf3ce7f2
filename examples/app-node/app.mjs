#!/usr/bin/env node
// An app behind the sidecar that dispatches by the routing key. Node 18 or later, no packages.
//
//     usage: node app.mjs [PORT]      default 8080, 0 takes a free one; listens on 127.0.0.1 only
//
// To try retries: for a message with the header closed=2 the warehouse is closed for the first two attempts.

import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'

// One function for each routing key. It is the key of the first publish, also of a message that was retried or
// redriven.
const handlers = new Map([
  ['order.created', (order) => `reserved order ${order.order}`],
  ['order.cancelled', (order) => `released order ${order.order}`],
  ['order.shipped', (order) => `invoiced order ${order.order}`],
])

// Delivery is at least once. A real app keeps the ids in its database and adds one in the transaction that does the
// work.
const done = new Set()

const attempts = new Map()

// warehouse stands for what the work needs and what is away sometimes.
function warehouse(id, closed) {
  attempts.set(id, (attempts.get(id) ?? 0) + 1)
  if (attempts.get(id) <= closed) throw Object.assign(new Error('the warehouse is closed'), { status: 503 })
}

async function handle(req, res) {
  const body = await text(req)
  const key = req.headers['amqp-routing-key']
  const id = req.headers['amqp-message-id']
  const work = handlers.get(key)
  if (work && !done.has(id)) { // a message with another key is not for this app
    warehouse(id, Number(req.headers['amqp-header-closed'] ?? 0))
    console.log(`${key} ${id}: ${work(JSON.parse(body))}`)
    done.add(id)
  }
  res.writeHead(204).end()
}

const server = createServer((req, res) => handle(req, res).catch((err) => {
  // The sidecar retries the message. JSON says why it failed: an operator finds it beside a parked message.
  res.writeHead(err.status ?? 500, { 'Content-Type': 'application/json' }).end(JSON.stringify({ error: err.message }))
}))
server.listen(Number(process.argv[2] ?? 8080), '127.0.0.1', () => {
  console.log(`listening on 127.0.0.1:${server.address().port}`)
})
process.on('SIGTERM', () => server.close()) // finishes what is in flight
