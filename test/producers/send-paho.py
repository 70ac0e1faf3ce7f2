import json
import os

import paho.mqtt.publish as publish

publish.single(os.environ["KEY"].replace(".", "/"), json.dumps({"id": 7, "name": "Zoë", "price": 1.5}), qos=1,
               hostname="127.0.0.1", port=int(os.environ["BROKER_MQTT"]), auth={"username": "guest", "password": "guest"})
