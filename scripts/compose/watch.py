"""watch.py MODEL.json PROMETHEUS PSQL...: runs the curl commands of README.md and INSERTs a row into the outbox, with PSQL, and waits until
Prometheus has seen what README.md promises. PUBLISHED=no asks the ports inside instead of those that are published."""

import json
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request

from check import curls, try_it

PATIENCE = 180  # two scrapes, the retry, and a slow machine


def ask(prometheus, path, **query):
    url = f"http://{prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]


def value(prometheus, query):
    result = ask(prometheus, "query", query=query)["result"]
    return float(result[0]["value"][1]) if result else None


def await_value(prometheus, query, wanted):
    end = time.monotonic() + PATIENCE
    while (got := value(prometheus, query)) != wanted:
        if time.monotonic() > end:
            sys.exit(f"compose: {query} is {got}, not {wanted}")
        time.sleep(1)
    print(f"compose: {query} = {wanted:g}")


def run(command, services):
    """Runs a curl command, which has to succeed: publish has to say 204."""
    if os.environ.get("PUBLISHED") == "no":
        for port in services["pod"]["ports"]:
            command = command.replace(f"127.0.0.1:{port['published']}/", f"127.0.0.1:{port['target']}/")
    said = subprocess.run(["bash", "-c", command], check=True, stdout=subprocess.PIPE, text=True).stdout
    if "/publish/" in command and " 204 " not in said:
        sys.exit(f"compose: {command}: {said}")
    print(f"compose: {command.splitlines()[0]}")


def insert(psql):
    """The INSERT of README.md."""
    statement = try_it().partition('-c "')[2].partition('"\n')[0].replace('\\"', '"')
    subprocess.run([*psql, "-c", statement], check=True, stdout=subprocess.DEVNULL)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        services = json.load(file)["services"]
    prometheus, psql = sys.argv[2], sys.argv[3:]
    for command in curls():
        run(command, services)
    insert(psql)
    await_value(prometheus, 'up{job="amqp-sidecar"}', 1)
    await_value(prometheus, 'sum(sidecar_messages_settled_total{outcome="retry"})', 1)
    await_value(prometheus, 'sum(sidecar_messages_settled_total{outcome="park"})', 1)
    await_value(prometheus, 'sum(sidecar_messages_settled_total{outcome="ack"})', 2)
    rules = [rule for group in ask(prometheus, "rules")["groups"] for rule in group["rules"]]
    ill = [rule["name"] for rule in rules if rule["health"] != "ok"]
    if not rules or ill:
        sys.exit(f"compose: {len(rules)} alert rules, not evaluated: {ill}")
    print(f"compose: {len(rules)} alert rules are evaluated")


if __name__ == "__main__":
    main()
