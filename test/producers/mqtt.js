const mqtt = require('mqtt')

async function main() {
  const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${process.env.BROKER_MQTT}`, { username: 'guest', password: 'guest' })
  const topic = process.env.KEY.replaceAll('.', '/')
  await client.publishAsync(topic, JSON.stringify({ id: 7, name: 'Zoë', price: 1.5 }), { qos: 1 })
  await client.endAsync()
}

main()
