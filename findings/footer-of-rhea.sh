#!/usr/bin/env bash
# footer-of-rhea.sh [VERSION]: a message with a footer, sent by rhea.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

broker "${1:-4.3}"
npm_packages rhea@3.0.5 amqplib@2.3.1
cat >program.js <<'JS'
const rhea = require('rhea')
const amqplib = require('amqplib')
const { hostname: host, port } = new URL(process.env.AMQP_URL)

async function main() {
  const connection = await amqplib.connect(process.env.AMQP_URL)
  const channel = await connection.createChannel()
  await channel.assertQueue('orders')
  const message = { body: 'text', footer: { 'x-opt-sum': 'abc' } }
  const bytes = rhea.message.encode(message)
  const place = (code) => bytes.indexOf(Buffer.from([0x00, 0x53, code]))
  console.log(`body at byte ${place(0x77)}, footer at byte ${place(0x78)}`)
  const client = rhea.connect({ host, port, username: 'guest', password: 'guest', reconnect: false })
  const sender = client.open_sender('/queues/orders')
  sender.once('sendable', () => sender.send(message))
  console.log(await new Promise((resolve) => {
    client.on('accepted', () => resolve('accepted'))
    client.on('session_error', () => {})
    sender.on('sender_error', () => resolve(`link closed: ${sender.error.condition}`))
  }))
  console.log(`messages: ${(await channel.checkQueue('orders')).messageCount}`)
  process.exit(0)
}

main()
JS
seen=$(timeout 60 node program.js)
expect "a text with a footer" $'body at byte 36, footer at byte 8\nlink closed: amqp:decode-error\nmessages: 0' "$seen"
