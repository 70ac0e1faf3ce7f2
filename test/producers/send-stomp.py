import json
import os

import stomp

connection = stomp.Connection([("127.0.0.1", int(os.environ["BROKER_STOMP"]))])
connection.connect("guest", "guest", wait=True)
connection.send(f"/exchange/{os.environ['EXCHANGE']}/{os.environ['KEY']}", json.dumps({"id": 7, "name": "Zoë", "price": 1.5}))
connection.disconnect()
