#!/usr/bin/env python3
"""An HTTP app behind the sidecar that answers what each message asks for. Standard library only.

The message body is JSON; everything in it is optional:

    {"answers": [503, 200], "delay_ms": 100, "headers": {"Retry-After": "2"}}

The first delivery of a message gets the first answer, the second delivery the second, and so on; the last one repeats.
A body that says nothing gets 200. A message is known by its Amqp-Message-Id, or by its body if it has none.
Each path counts for itself.

    usage: app.py [PORT]      default 8080, 0 takes a free one; listens on 127.0.0.1 only
"""

import json
import signal
import sys
import threading
import time
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class App(ThreadingHTTPServer):
    daemon_threads = True  # an idle keep-alive connection must not hold the stop
    request_queue_size = 128

    def __init__(self, address):
        super().__init__(address, Handler)
        self.deliveries = {}  # (path, message) -> how often it came
        self.busy = 0
        self.stopping = False
        self.changed = threading.Condition()

    def next_delivery(self, message):
        with self.changed:
            self.deliveries[message] = self.deliveries.get(message, 0) + 1
            return self.deliveries[message]

    def say(self, text):
        # One write under a lock: print() writes its line end separately, and every request has a thread of its own.
        with self.changed:
            sys.stdout.write(f"{datetime.now(timezone.utc).isoformat()} {text}\n")
            sys.stdout.flush()

    def stop(self, *_):
        # shutdown() waits for serve_forever, which this thread may be in the middle of: ask from another one.
        self.stopping = True
        threading.Thread(target=self.shutdown).start()

    def wait_until_idle(self, seconds):
        with self.changed:
            return self.changed.wait_for(lambda: self.busy == 0, seconds)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep-alive: the sidecar reuses its connections
    disable_nagle_algorithm = True

    def do_GET(self):
        """Health: what SIDECAR_APP_HEALTH_PATH asks."""
        self.answer(503 if self.server.stopping else 204, {})

    def do_POST(self):
        with self.server.changed:
            self.server.busy += 1
        try:
            self.take_message()
        finally:
            with self.server.changed:
                self.server.busy -= 1
                self.server.changed.notify_all()

    def take_message(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        wish = parse(body)
        message_id = self.headers.get("Amqp-Message-Id")
        delivery = self.server.next_delivery((self.path, message_id or body))
        answers = wish.get("answers") or [200]
        status = answers[min(delivery, len(answers)) - 1]
        time.sleep(wish.get("delay_ms", 0) / 1000)
        self.server.say(f"POST id={message_id or '-'} delivery={delivery}"
                        f" attempt={self.headers.get('Amqp-Delivery-Attempt', '-')}"
                        f" retries={self.headers.get('Amqp-Retry-Count', '-')} status={status} path={self.path}")
        self.answer(status, wish.get("headers", {}))

    def answer(self, status, headers):
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", "0")
        if self.server.stopping:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()


def parse(body):
    try:
        wish = json.loads(body)
    except ValueError:
        return {}
    return wish if isinstance(wish, dict) else {}


def main():
    app = App(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8080))
    signal.signal(signal.SIGTERM, app.stop)
    signal.signal(signal.SIGINT, app.stop)
    print(f"listening on http://127.0.0.1:{app.server_port}/", flush=True)
    app.serve_forever(poll_interval=0.1)
    app.server_close()
    sys.exit(0 if app.wait_until_idle(10) else 1)


if __name__ == "__main__":
    main()
