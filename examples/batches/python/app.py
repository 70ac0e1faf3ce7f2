#!/usr/bin/env python3
"""An app behind the sidecar that takes messages in batches. Standard library only.

    usage: app.py [PORT]      default 8080, 0 takes a free one; listens on 127.0.0.1 only

The sidecar needs SIDECAR_BATCH_SIZE, for example 100. To try it: an order without pieces is parked, and for a message
with the header closed=2 the warehouse is closed for the first two attempts.
"""

import base64
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Delivery is at least once. A real app has both in its database, and one transaction for a batch with a savepoint for
# each message.
done = set()
reserved = 0
lock = threading.Lock()


class Failed(Exception):
    def __init__(self, reason, **verdict):
        super().__init__(reason)
        self.verdict = verdict


def content(item):
    """Returns the body. JSON is part of the line, unless it has line feeds; other bodies are text or base64."""
    body = item["body"] if "body" in item else base64.b64decode(item["body_base64"])
    return json.loads(body) if isinstance(body, (str, bytes)) else body


def reserve(item):
    """Does the work of one message."""
    global reserved
    message_id = item.get("message_id")
    if message_id and message_id in done:
        return
    order = content(item)
    if order.get("pieces", 0) < 1:
        raise Failed("an order without pieces", disposition="park")
    if item["delivery"]["attempt"] <= int(item.get("headers", {}).get("closed", 0)):
        raise Failed("the warehouse is closed", status=503)  # and retry_after=60, if it opens in a minute
    reserved += order["pieces"]
    done.add(message_id)


def verdicts(items):
    """Yields a verdict for each message that failed: the others are done.

    The status of the response is for the batch. After a 500 all of its messages come again, each in a POST of its own.
    """
    for index, item in enumerate(items):  # not the id: it may be missing, or there twice
        try:
            reserve(item)
        except Failed as err:
            yield {"index": index, "reason": str(err), **err.verdict}
        except Exception as err:
            yield {"index": index, "reason": repr(err), "status": 500}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep-alive: the sidecar reuses its connections

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        items = [json.loads(line) for line in body.splitlines()]  # one line for a message that comes alone
        with lock:
            failed = list(verdicts(items))
            print(f"{len(items)} messages, {len(failed)} failed, {reserved} pieces reserved", flush=True)
        answer = "".join(json.dumps(verdict) + "\n" for verdict in failed).encode()
        self.send_response_only(200)
        self.send_header("Content-Type", "application/jsonl")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8080), Handler)
    print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
