require('reflect-metadata')
const { Module } = require('@nestjs/common')
const { NestFactory } = require('@nestjs/core')
const { AmqpConnection, RabbitMQModule } = require('@golevelup/nestjs-rabbitmq')

class AppModule {}
Module({ imports: [RabbitMQModule.forRoot({ uri: process.env.AMQP_URL })] })(AppModule)

async function main() {
  const app = await NestFactory.createApplicationContext(AppModule, { logger: false })
  await app.get(AmqpConnection).publish(process.env.EXCHANGE, process.env.KEY, { id: 7, name: 'Zoë', price: 1.5 })
  await app.close()
}

main()
