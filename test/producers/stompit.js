const stompit = require('stompit')

const login = { host: '/', login: 'guest', passcode: 'guest' }
stompit.connect({ host: '127.0.0.1', port: process.env.BROKER_STOMP, connectHeaders: login }, (err, client) => {
  if (err) throw err
  const frame = client.send({ destination: `/exchange/${process.env.EXCHANGE}/${process.env.KEY}` })
  frame.write(JSON.stringify({ id: 7, name: 'Zoë', price: 1.5 }))
  frame.end()
  client.disconnect()
})
