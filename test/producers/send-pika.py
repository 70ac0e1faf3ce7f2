import json
import os

import pika

connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
channel = connection.channel()
order = {"id": 7, "name": "Zoë", "price": 1.5}
channel.basic_publish(exchange=os.environ["EXCHANGE"], routing_key=os.environ["KEY"], body=json.dumps(order))
connection.close()
