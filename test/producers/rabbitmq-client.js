const { Connection } = require('rabbitmq-client')

async function main() {
  const rabbit = new Connection(process.env.AMQP_URL)
  const publisher = rabbit.createPublisher({ confirm: true })
  await publisher.send({ exchange: process.env.EXCHANGE, routingKey: process.env.KEY }, { id: 7, name: 'Zoë', price: 1.5 })
  await publisher.close()
  await rabbit.close()
}

main()
