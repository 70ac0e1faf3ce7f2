#!/usr/bin/env node
// Publishes a message over HTTP, and tries again until the broker has it. Node 18.17 or later, no packages.
//
//     usage: node publish.mjs http://127.0.0.1:9092/publish/default/order.placed '{"order":1}'

import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

// publish returns when the broker has confirmed the message, whose message id is key. After a broken connection, a timeout
// or a 504 it is unknown whether it has. The message is sent again with the same key, and may be there twice: consumers know
// it by that.
async function publish(url, body, key, seconds = 60) {
  const end = Date.now() + seconds * 1000
  const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': key }
  for (;;) {
    let pause = 1
    let problem
    try {
      const answer = await fetch(url, { method: 'POST', headers, body, signal: AbortSignal.timeout(15_000) })
      if (answer.ok) return
      problem = new Error(`${answer.status} ${(await answer.json()).detail}`)
      problem.final = ![503, 504].includes(answer.status)
      pause = Number(answer.headers.get('Retry-After') ?? pause)
    } catch (err) {
      problem = err.cause ?? err // fetch hides in the cause what went wrong
    }
    if (problem.final || Date.now() + pause * 1000 > end) throw problem
    console.log(`not yet: ${problem.message}`)
    await sleep(pause * 1000)
  }
}

const [url, body, ...rest] = process.argv.slice(2)
if (body === undefined || rest.length > 0 || !/^https?:/.test(url) || !URL.canParse(url)) {
  console.error("usage: node publish.mjs http://127.0.0.1:9092/publish/default/order.placed '{\"order\":1}'")
  process.exit(64)
}
const key = randomUUID()
await publish(url, body, key)
console.log(`published ${key}`)
