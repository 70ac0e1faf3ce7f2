require "bunny"
require "json"

connection = Bunny.new(ENV["AMQP_URL"])
connection.start
exchange = connection.create_channel.topic(ENV["EXCHANGE"], durable: true)
exchange.publish({id: 7, name: "Zoë", price: 1.5}.to_json, routing_key: ENV["KEY"])
connection.close
