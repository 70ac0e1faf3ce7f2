require('reflect-metadata')
const { ClientProxyFactory, Transport } = require('@nestjs/microservices')
const { lastValueFrom } = require('rxjs')

async function main() {
  const client = ClientProxyFactory.create({
    transport: Transport.RMQ,
    options: { urls: [process.env.AMQP_URL], exchange: process.env.EXCHANGE, exchangeType: 'topic', wildcards: true },
  })
  await lastValueFrom(client.emit(process.env.KEY, { id: 7, name: 'Zoë', price: 1.5 }))
  await client.close()
}

main()
