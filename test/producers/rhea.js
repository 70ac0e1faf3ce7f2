// usage: rhea.js string|buffer|map|data
const rhea = require('rhea')

const order = { id: 7, name: 'Zoë', price: 1.5 }
const json = JSON.stringify(order)
const body = {
  string: json,
  buffer: Buffer.from(json),
  map: order,
  data: rhea.message.data_section(Buffer.from(json)),
}[process.argv[2]]
const { hostname, port, username, password } = new URL(process.env.AMQP_URL)
const connection = rhea.connect({ host: hostname, port, username, password, reconnect: false })
const sender = connection.open_sender(`/exchanges/${process.env.EXCHANGE}/${process.env.KEY}`)
sender.once('sendable', () => sender.send({ body }))
sender.on('accepted', () => connection.close())
