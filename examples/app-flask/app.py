#!/usr/bin/env python3
"""An app behind the sidecar that dispatches by the routing key. Flask 2.2 or later.

    usage: app.py [PORT]      default 8080, 0 takes a free one; listens on 127.0.0.1 only

This is Flask's own server; a real app has gunicorn or waitress. To try retries: for a message with the header closed=2
the warehouse is closed for the first two attempts.
"""

import sys
import threading

from flask import Flask, request
from werkzeug.exceptions import HTTPException, ServiceUnavailable
from werkzeug.serving import WSGIRequestHandler

app = Flask(__name__)

# Delivery is at least once. A real app keeps the ids in its database and adds one in the transaction that does the
# work.
done = set()
attempts = {}
lock = threading.Lock()

# One function for each routing key. It is the key of the first publish, also of a message that was retried or redriven.
handlers = {
    "order.created": lambda order: f"reserved order {order['order']}",
    "order.cancelled": lambda order: f"released order {order['order']}",
    "order.shipped": lambda order: f"invoiced order {order['order']}",
}


def warehouse(message, closed):
    """Stands for what the work needs and what is away sometimes."""
    attempts[message] = attempts.get(message, 0) + 1
    if attempts[message] <= closed:
        raise ServiceUnavailable("the warehouse is closed")


@app.post("/")
def handle():
    key, message = request.headers["Amqp-Routing-Key"], request.headers["Amqp-Message-Id"]
    work = handlers.get(key)
    with lock:
        if work and message not in done:  # a message with another key is not for this app
            warehouse(message, int(request.headers.get("Amqp-Header-Closed", 0)))
            print(f"{key} {message}: {work(request.get_json())}", flush=True)
            done.add(message)
    return "", 204


@app.errorhandler(HTTPException)
def failed(problem):
    """The sidecar retries the message. JSON says why it failed: an operator finds it beside a parked message."""
    return {"error": problem.description}, problem.code


if __name__ == "__main__":
    WSGIRequestHandler.protocol_version = "HTTP/1.1"  # keep-alive: the sidecar reuses its connections
    app.run("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8080)
