import os

from kombu import Connection

with Connection(os.environ["AMQP_URL"]) as connection:
    producer = connection.Producer()
    producer.publish({"id": 7, "name": "Zoë", "price": 1.5}, exchange=os.environ["EXCHANGE"], routing_key=os.environ["KEY"])
