"""watch.py MODEL.json PROMETHEUS: publishes a message that fails once, and waits until Prometheus has seen it retried and acked."""

import json
import subprocess
import sys
import time
import urllib.parse
import urllib.request

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


def publish(rabbitmq):
    user, password = (rabbitmq["environment"][f"RABBITMQ_DEFAULT_{what}"] for what in ("USER", "PASS"))
    subprocess.run(["amqp-publish", "-u", f"amqp://{user}:{password}@127.0.0.1:5672", "-e", "demo.main-exchange", "-r", "",
                    "-p", "-b", '{"answers":[503,200]}'], check=True)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        services = json.load(file)["services"]
    prometheus = sys.argv[2]
    # The exchange is there when the sidecar has declared it.
    await_value(prometheus, 'sum(sidecar_amqp_connected)', 1)
    await_value(prometheus, 'up{job="amqp-sidecar"}', 1)
    publish(services["rabbitmq"])
    await_value(prometheus, 'sum(sidecar_messages_settled_total{outcome="retry"})', 1)
    await_value(prometheus, 'sum(sidecar_messages_settled_total{outcome="ack"})', 1)
    rules = [rule for group in ask(prometheus, "rules")["groups"] for rule in group["rules"]]
    ill = [rule["name"] for rule in rules if rule["health"] != "ok"]
    if not rules or ill:
        sys.exit(f"compose: {len(rules)} alert rules, not evaluated: {ill}")
    print(f"compose: {len(rules)} alert rules are evaluated")


if __name__ == "__main__":
    main()
