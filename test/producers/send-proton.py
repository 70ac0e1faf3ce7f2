"""usage: send-proton.py str|bytes|dict"""
import json
import os
import sys

from proton import Message
from proton.utils import BlockingConnection

order = {"id": 7, "name": "Zoë", "price": 1.5}
body = {"str": json.dumps(order), "bytes": json.dumps(order).encode(), "dict": order}[sys.argv[1]]
connection = BlockingConnection(os.environ["AMQP_URL"].removesuffix("/%2F"), allowed_mechs="PLAIN")
sender = connection.create_sender(f"/exchanges/{os.environ['EXCHANGE']}/{os.environ['KEY']}")
sender.send(Message(body=body))
connection.close()
