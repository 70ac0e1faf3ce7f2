const express = require('express')

const app = express()
app.use(express.json())
app.post('/', (req, res) => {
  if (req.body === undefined) throw new Error('the body is not JSON')
  console.log(req.get('Amqp-Routing-Key'), JSON.stringify(req.body))
  res.sendStatus(204)
})
const server = app.listen(0, '127.0.0.1', () => console.log(`listening on 127.0.0.1:${server.address().port}`))
