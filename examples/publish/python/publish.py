#!/usr/bin/env python3
"""Publishes a message over HTTP, and tries again until the broker has it. Standard library only.

    usage: publish.py http://127.0.0.1:9092/publish/default/order.placed '{"order":1}'
"""

import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

# The sidecar is on this machine, whatever http_proxy says.
http = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def publish(url, body, key, seconds=60):
    """Returns when the broker has confirmed the message, whose message id is key.

    After a broken connection, a timeout or a 504 it is unknown whether it has. The message is sent again with the same key,
    and may be there twice: consumers know it by that.
    """
    end = time.monotonic() + seconds
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", "Idempotency-Key": key})
    while True:
        pause = 1
        try:
            with http.open(request, timeout=15):
                return
        except urllib.error.HTTPError as err:
            problem = f"{err.code} {json.load(err).get('detail')}"
            if err.code not in (503, 504):
                raise RuntimeError(problem) from err
            pause = int(err.headers.get("Retry-After", pause))
        except OSError as err:
            problem = str(err)
        if time.monotonic() + pause > end:
            raise TimeoutError(problem)
        print(f"not yet: {problem}", flush=True)
        time.sleep(pause)


def valid(url):
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


if __name__ == "__main__":
    if len(sys.argv) != 3 or not valid(sys.argv[1]):
        print(__doc__.strip().splitlines()[-1].strip(), file=sys.stderr)
        sys.exit(64)
    key = str(uuid.uuid4())
    publish(sys.argv[1], sys.argv[2].encode(), key)
    print(f"published {key}")
