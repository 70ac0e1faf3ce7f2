#!/usr/bin/env bash
# data-sections-of-amqp10.sh [VERSION]: an AMQP 1.0 message with two data sections, as an AMQP 0.9.1 consumer gets it.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

VERSION=${1:-3.10}
broker "$VERSION"
npm_packages rhea@3.0.5 amqplib@2.3.1
address=/queues/orders
if [[ $VERSION = 3.* ]]; then # later versions have AMQP 1.0 without a plugin
  address=/amq/queue/orders
  "$BROKER_CTL" eval '{ok, File} = application:get_env(rabbit, enabled_plugins_file),
    ok = file:write_file(File, "[rabbitmq_amqp1_0]."), rabbit_plugins:ensure(File).' >&2
fi
cat >program.js <<'JS'
const rhea = require('rhea')
const amqplib = require('amqplib')
const { hostname: host, port } = new URL(process.env.AMQP_URL)

async function main() {
  const connection = await amqplib.connect(process.env.AMQP_URL)
  const channel = await connection.createChannel()
  await channel.assertQueue('orders')
  const sender = rhea.connect({ host, port, username: 'guest', password: 'guest' }).open_sender(process.argv[2])
  const body = rhea.message.data_sections([Buffer.from('first,'), Buffer.from('second')])
  sender.once('sendable', () => sender.send({ body }))
  await new Promise((resolve) => sender.once('accepted', resolve))
  let got = false
  while (!got) got = await channel.get('orders', { noAck: true })
  console.log(`type=${got.properties.type} body=${got.content.toString('latin1').replace(/[^ -~]/g, '.')}`)
  process.exit(0)
}

main()
JS
seen=$(timeout 60 node program.js "$address")
case $VERSION in
  3.*) expect "the two sections, first and second" "type=amqp-1.0 body=.Su..second.Su..first," "$seen" ;;
  *) expect "the two sections, first and second" "type=undefined body=first,second" "$seen" ;;
esac
