"""check.py MODEL.json: the compose file is as closed as it says. What it should be is in docker-compose.yml itself."""

import json
import os
import re
import sys


def seconds(duration):
    """The seconds of 30s, 1m30s, 1h: what Compose and the sidecar both take."""
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(float(n) * units[unit] for n, unit in re.findall(r"([\d.]+)([hms])", duration))


def problems(services):
    for name, service in services.items():
        for port in service.get("ports", []):
            if port.get("host_ip") != "127.0.0.1":
                yield f"{name}: port {port['target']} is published to more than 127.0.0.1"
        tag = service["image"].rpartition("/")[2].partition(":")[2]
        if tag in ("", "latest"):
            yield f"{name}: the image {service['image']} has no version"
        if "no-new-privileges:true" not in service.get("security_opt", []):
            yield f"{name}: may gain privileges"
        # The images of broker and database begin as root, and write their configuration.
        if name not in ("rabbitmq", "postgres") and (not service.get("read_only") or service.get("cap_drop") != ["ALL"]):
            yield f"{name}: its root is writable, or it has capabilities"
        for volume in service.get("volumes", []):
            if volume["type"] == "bind" and not os.path.isfile(volume["source"]):
                yield f"{name}: no such file: {volume['source']}"
            if volume["type"] == "bind" and not volume.get("read_only"):
                yield f"{name}: may write {volume['source']}"
        if name not in ("pod", "sidecar", "migrate") and "healthcheck" not in service:
            yield f"{name}: has no health check"  # the sidecar's is in its image, a pause has none, and one ends

    sidecar = services["sidecar"]
    if services["app"]["network_mode"] != sidecar["network_mode"]:
        yield "app and sidecar do not share a network"
    if seconds(sidecar["stop_grace_period"]) <= seconds(sidecar["environment"]["SIDECAR_SHUTDOWN_GRACE"]):
        yield "the sidecar is killed before its grace is over"
    if not {"app", "rabbitmq"} <= set(sidecar["depends_on"]):
        yield "app or broker may end before the sidecar has drained"
    yield from unlike_readme(services)


def unlike_readme(services):
    """What README.md starts under "Try it" is what the compose file starts."""
    exports = " ".join(re.findall(r"^export (.*)", try_it(), re.M))
    environment = services["sidecar"]["environment"]
    for name, value in re.findall(r"\b(SIDECAR_(?!OUTBOX)[A-Z_]+)=(\S+)", exports):
        if environment.get(name) != value:
            yield f"{name} is {environment.get(name)}, and {value} in README.md"
    published = {port["published"] for service in services.values() for port in service.get("ports", [])}
    for port in set(re.findall(r"http://127\.0\.0\.1:(\d+)", "\n".join(curls()))) - published:
        yield f"port {port}, which README.md asks, is not published"
    with open("docker-compose.yml", encoding="utf-8") as file:
        header = "".join(line for line in file if line.startswith("#"))
    for command in re.findall(r"^#   (curl .*)", header, re.M):
        if command not in curls():
            yield f"not in README.md: {command}"


def try_it():
    """README.md from "Try it" on, as far as one queue goes."""
    with open("README.md", encoding="utf-8") as file:
        return file.read().partition("\n## Try it\n")[2].partition("\n### Several queues\n")[0]


def curls():
    """The curl commands of README.md, without comments."""
    return [re.sub(r"\s+#.*", "", command) for command in re.findall(r"^curl .*(?:(?<=\\)\n.*)*", try_it(), re.M)]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        services = json.load(file)["services"]
    found = list(problems(services))
    for problem in found:
        print(f"compose: {problem}", file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"compose: {len(services)} services, valid, and as closed as they should be")


if __name__ == "__main__":
    main()
