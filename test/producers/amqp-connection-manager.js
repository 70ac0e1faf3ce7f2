const amqp = require('amqp-connection-manager')

async function main() {
  const connection = amqp.connect([process.env.AMQP_URL])
  const channel = connection.createChannel({ json: true })
  await channel.publish(process.env.EXCHANGE, process.env.KEY, { id: 7, name: 'Zoë', price: 1.5 })
  await connection.close()
}

main()
