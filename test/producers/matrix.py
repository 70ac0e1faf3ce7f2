"""Sends each message of cases.tsv to five apps through a sidecar each, and compares what they were given with
exceptions.tsv. A message that is not in it has to be done once, with the object as it was sent."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE, ROOT, PATIENCE = Path(__file__).parent, Path.cwd(), 60
ORDER = {"id": 7, "name": "Zoë", "price": 1.5}
APPS = {
    "express": ["node", "apps/express.js"],
    "flask": ["/usr/bin/python3", "apps/flask_app.py"],
    "python": ["/usr/bin/python3", "apps/http_server.py"],
    "go": ["./go-app"],
    "java": ["java", "-cp", "/usr/share/java/*", "apps/App.java"],
}
running = []


def start(name, argv, **env):
    log = HERE / f"{name}.log"
    running.append(subprocess.Popen(argv, cwd=HERE, env=os.environ | env, stdout=log.open("w"), stderr=subprocess.STDOUT))
    return log


def await_(what, condition):
    end = time.monotonic() + PATIENCE
    while not (seen := condition()):
        if time.monotonic() > end:
            sys.exit(f"producers: waited {PATIENCE} s: {what}")
        time.sleep(0.2)
    return seen


def ready(address):
    try:
        return urllib.request.urlopen(f"http://{address}/readyz").status == 200
    except OSError:
        return False


def launch(app, argv):
    """Starts an app and its sidecar, and returns the log of the app."""
    log = start(app, argv)
    address = await_(f"the address of {app}", lambda: re.search(r"127\.0\.0\.1:\d+", log.read_text()))[0]
    admin, control = (f"127.0.0.1:{subprocess.check_output(['scripts/broker.sh', 'port'], text=True).strip()}" for _ in "ab")
    start(f"sidecar-{app}", [str(ROOT / "bin/sidecar")], SIDECAR_SERVICE=f"shop-{app}", SIDECAR_AMQP_URL=os.environ["AMQP_URL"],
          SIDECAR_APP_URL=f"http://{address}/", SIDECAR_ADMIN_ADDR=admin, SIDECAR_CONTROL_ADDR=control,
          SIDECAR_TOPOLOGY="delay-ladder", SIDECAR_QUEUE_TYPE="classic", SIDECAR_MAX_RETRIES="0",
          SIDECAR_BINDINGS=f"{os.environ['EXCHANGE']}:orders.*,amq.topic:orders.*")
    await_(f"the sidecar of {app}", lambda: ready(admin))
    return log


def queues():
    text = subprocess.check_output([os.environ["BROKER_CTL"], "-q", "--no-table-headers", "list_queues", "name", "messages"], text=True)
    return {name: int(n) for name, n in (line.split("\t") for line in text.splitlines())}


def settled(logs, n):
    held = queues()
    return all(held[f"shop.{app}"] == 0 and held[f"shop.{app}.dlq"] + log.read_text().count("\norders.") >= n for app, log in logs.items())


def given(log, producer):
    """What the app says that it was given: done, other (JSON that is not the object), refused, or how often it was done."""
    lines = [line.split(" ", 1)[1] for line in log.read_text().splitlines() if line.startswith(f"orders.{producer} ")]
    if len(lines) != 1:
        return f"{len(lines)} times" if lines else "refused"
    return "done" if json.loads(lines[0]) == ORDER else "other"


def main():
    logs = {app: launch(app, argv) for app, argv in APPS.items()}
    sent = subprocess.check_output(["scripts/producers.sh", "send"], text=True)
    producers = [line.split("\t")[0] for line in sent.splitlines()]
    await_("each message is done or parked", lambda: settled(logs, len(producers)))
    expected = {}
    for line in (HERE / "exceptions.tsv").read_text().splitlines():
        producer, apps, outcome, _ = line.split("\t")
        expected |= {(producer, app): outcome for app in (APPS if apps == "all" else apps.split(","))}
    wrong, held = len(expected.keys() - {(p, a) for p in producers for a in APPS}), queues()
    print(f"{'':26}" + "".join(f"{app:12}" for app in APPS))
    for producer in producers:
        row = f"{producer:26}"
        for app, log in logs.items():
            seen, want = given(log, producer), expected.get((producer, app), "done")
            wrong += seen != want
            row += f"{seen if seen == want else f'{seen}!':12}"
        print(row)
    for app, log in logs.items():
        refused = sum(given(log, producer) == "refused" for producer in producers)
        if held[f"shop.{app}.dlq"] != refused:
            sys.exit(f"producers: {app} has {held[f'shop.{app}.dlq']} parked messages, {refused} are not done")
    if wrong:
        sys.exit(f"producers: {wrong} cells are not as exceptions.tsv says")


try:
    main()
finally:
    for process in running:
        process.terminate()
