const { BrokerAsPromised } = require('rascal')

async function main() {
  const broker = await BrokerAsPromised.create({
    vhosts: {
      '/': {
        connection: { url: process.env.AMQP_URL },
        exchanges: { [process.env.EXCHANGE]: { type: 'topic' } },
        publications: { order: { exchange: process.env.EXCHANGE, routingKey: process.env.KEY } },
      },
    },
  })
  const publication = await broker.publish('order', { id: 7, name: 'Zoë', price: 1.5 })
  await new Promise((resolve, reject) => publication.on('success', resolve).on('error', reject))
  await broker.shutdown()
}

main()
