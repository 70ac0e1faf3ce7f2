import json

from flask import Flask, request

app = Flask(__name__)


@app.post("/")
def handle():
    print(request.headers["Amqp-Routing-Key"], json.dumps(request.get_json()), flush=True)
    return "", 204


app.run("127.0.0.1", 0)
