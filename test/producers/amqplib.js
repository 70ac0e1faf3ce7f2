// usage: amqplib.js [timestamp]
const amqplib = require('amqplib')

async function main() {
  const connection = await amqplib.connect(process.env.AMQP_URL)
  const channel = await connection.createConfirmChannel()
  const order = { id: 7, name: 'Zoë', price: 1.5 }
  const options = process.argv[2] ? { timestamp: Date.now() } : {}
  channel.publish(process.env.EXCHANGE, process.env.KEY, Buffer.from(JSON.stringify(order)), options)
  await channel.waitForConfirms()
  await connection.close()
}

main()
