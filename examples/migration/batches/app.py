#!/usr/bin/env python3
"""Handlers of batches, as they were for Dapr and for AWS Lambda and as they are behind the sidecar. Flask 2.2 or later.

    usage: app.py [PORT]      default 8080, 0 takes a free one; listens on 127.0.0.1 only
"""

import base64
import json
import sys

from flask import Flask, request
from werkzeug.serving import WSGIRequestHandler

app = Flask(__name__)


def bill(order):
    if order["amount"] <= 0:
        return "DROP"
    if order["amount"] > 1000:  # an example of a failure that passes
        return "RETRY"
    print(f"billed {order['id']}", flush=True)
    return "SUCCESS"


@app.post("/before")
def before():
    statuses = []
    for entry in request.get_json()["entries"]:
        statuses.append({"entryId": entry["entryId"], "status": bill(entry["event"]["data"])})
    return {"statuses": statuses}


VERDICTS = {"RETRY": {"status": 503}, "DROP": {"disposition": "park"}}


@app.post("/after")
def after():
    failed = []
    for index, event in enumerate(request.get_json()):
        status = bill(event["data"])
        if status != "SUCCESS":
            failed.append({"index": index, "reason": status, **VERDICTS[status]})
    return "".join(json.dumps(verdict) + "\n" for verdict in failed), {"Content-Type": "application/jsonl"}


def lambda_handler(event, context):
    failures = []
    for record in event["Records"]:
        if bill(json.loads(record["body"])) != "SUCCESS":
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}


def text(message):
    body = message["body"] if "body" in message else base64.b64decode(message["body_base64"]).decode()
    return body if isinstance(body, str) else json.dumps(body)


@app.post("/lambda")
def from_lambda():
    messages = [json.loads(line) for line in request.get_data().splitlines()]
    records = [{"messageId": m.get("message_id", str(i)), "body": text(m)} for i, m in enumerate(messages)]
    return lambda_handler({"Records": records}, None)


if __name__ == "__main__":
    WSGIRequestHandler.protocol_version = "HTTP/1.1"  # keep-alive: the sidecar reuses its connections
    app.run("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8080)
