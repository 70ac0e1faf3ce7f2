#!/usr/bin/env node
// Orders and their messages, written in one transaction. The sidecar sends the messages of what was committed.
//
//     usage: npm ci; DATABASE_URL=postgres://… node orders.js [TRACKING-IDS]
//
// TRACKING-IDS is a JSON list.

import pg from 'pg'

// transaction runs work on one connection of the pool: what it writes is committed as a whole, or not at all.
async function transaction(pool, work) {
  const client = await pool.connect()
  let broken
  try {
    await client.query('BEGIN')
    const result = await work(client)
    await client.query('COMMIT')
    return result
  } catch (err) {
    await client.query('ROLLBACK').catch((lost) => { broken = lost })
    throw err
  } finally {
    client.release(broken) // a connection that could not roll back must not go back into the pool
  }
}

// emit adds a message to the transaction that client is in, and returns its id. It is sent when that transaction commits.
//
// orderingKey: messages of one key are sent one after the other, in the order of their inserts.
// trackingIds: the list in the header Amqp-Header-x-outbox-tracking-ids of the request that is being answered, if any.
async function emit(client, routingKey, body, { orderingKey, trackingIds } = {}) {
  const { rows } = await client.query(
    `INSERT INTO outbox (routing_key, body, properties, ordering_key, tracking_ids)
     VALUES ($1, $2, '{"content_type": "application/json"}', $3, $4) RETURNING message_id`,
    [routingKey, Buffer.from(JSON.stringify(body)), orderingKey, trackingIds && JSON.stringify(trackingIds)],
  )
  return rows[0].message_id
}

class Refused extends Error {}

async function insertOrder(client, customer, cents, trackingIds) {
  const { rows } = await client.query('INSERT INTO orders (customer, cents) VALUES ($1, $2) RETURNING id', [customer, cents])
  const order = Number(rows[0].id)
  const message = await emit(client, 'order.placed', { order, customer, cents }, { orderingKey: customer, trackingIds })
  if (cents > 1_000_000) throw new Refused(`order ${order}: message ${message} (${cents} cents are too much)`)
  return `order ${order}: message ${message}`
}

const placeOrder = (pool, ...order) => transaction(pool, (client) => insertOrder(client, ...order))

// placeOrders places several orders, all or none.
const placeOrders = (pool, orders) => transaction(pool, async (client) => {
  const placed = []
  for (const [customer, cents] of orders) placed.push(await insertOrder(client, customer, cents))
  return placed
})

const trackingIds = process.argv[2] && JSON.parse(process.argv[2])
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL })
try {
  console.log('committed  ', await placeOrder(pool, 'ada', 4200, trackingIds))
  await placeOrder(pool, 'bob', 9_999_999).catch((err) => {
    if (!(err instanceof Refused)) throw err
    console.log('rolled back', err.message)
  })
  for (const placed of await placeOrders(pool, [['cleo', 100], ['dan', 200], ['eve', 300]])) console.log('committed  ', placed)
} finally {
  await pool.end()
}
