"""parts.py MODEL.json DIR: runs the services of the compose file without a docker engine. See scripts/compose.sh.

It is started in a network and a mount namespace of its own, where it has every port to itself. What shares the network "pod" and
the broker, which listens on 127.0.0.1 only, are there; Prometheus is in a second one behind a link, because both listen on 9090.
"""

import json
import os
import shutil
import subprocess
import sys
import time

NETNS = f"sidecar-compose-{os.getpid()}"
POD, PROMETHEUS = "10.254.77.1", "10.254.77.2"
PATIENCE = 120


def sh(*command, **options):
    return subprocess.run(command, check=True, **options)


def say(text):
    print(f"compose: {text}", flush=True)


class Process:
    """A service whose program this machine has: the files of its volumes lie under a directory of its own."""

    def __init__(self, name, service, directory, prefix=(), search="/usr/sbin:/usr/bin:/sbin:/bin"):
        self.name, self.service, self.prefix = name, service, prefix
        self.root = os.path.join(directory, name)
        self.environment = {"PATH": search, **service.get("environment", {})}
        self.log = os.path.join(directory, f"{name}.log")
        for volume in service["volumes"]:
            target = self.path(volume["target"])
            if volume["type"] == "bind":
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy(volume["source"], target)
            else:
                os.makedirs(target)
                os.chown(target, 65534, 65534)

    def path(self, inside):
        return self.root + inside

    def translate(self, word):
        """A word of the command, a path or --flag=path, with the places of its volumes as they are here."""
        flag, sign, path = word.rpartition("=")
        places = [os.path.dirname(v["target"]) if v["type"] == "bind" else v["target"] for v in self.service["volumes"]]
        if any(path == place or path.startswith(place + "/") for place in places):
            path = self.path(path)
        return flag + sign + path

    def start(self, program=()):
        command = [*self.prefix, "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs",
                   "--bounding-set=-all", *program, *map(self.translate, self.service["command"])]
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def healthy(self):
        kind, *command = self.service["healthcheck"]["test"]
        assert kind == "CMD", kind
        done = subprocess.run([*self.prefix, *command], env=self.environment, capture_output=True, check=False)
        return self.process.poll() is None and done.returncode == 0

    def said(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


class Sidecar:
    """The image, in podman, locked as the compose file says, with the health check of the image."""

    def __init__(self, service):
        self.service = service
        self.container = None

    def podman(self, *arguments, **options):
        return sh("scripts/image.sh", "podman", *arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)

    def flags(self):
        s = self.service
        flags = ["--read-only"] if s["read_only"] else []
        flags += [f"--cap-drop={cap}" for cap in s["cap_drop"]] + [f"--security-opt={o.removesuffix(':true')}" for o in s["security_opt"]]
        return flags + [f"--env={name}={value}" for name, value in s["environment"].items()]

    def once(self):
        """Runs a service that ends."""
        s = self.service
        self.podman("run", "--rm", "--network=host", "--no-healthcheck", *self.flags(), f"localhost/{s['image']}", *s["command"])

    def start(self):
        image = f"localhost/{self.service['image']}"
        inspected = json.loads(self.podman("image", "inspect", image).stdout)[0]
        self.check = inspected["Healthcheck"]["Test"][1:]
        # podman itself checks through systemd alone.
        self.container = self.podman("run", "-d", "--network=host", "--no-healthcheck", *self.flags(), image).stdout.split()[-1]

    def healthy(self):
        done = subprocess.run(["scripts/image.sh", "podman", "exec", self.container, *self.check], capture_output=True, check=False)
        return done.returncode == 0

    def said(self):
        return self.podman("logs", self.container).stdout

    def stop(self):
        self.podman("stop", "-t", self.service["stop_grace_period"].removesuffix("s"), self.container)
        return int(self.podman("inspect", "--format", "{{.State.ExitCode}}", self.container).stdout)

    def remove(self):
        if self.container:
            self.podman("rm", "-f", self.container)


class Broker:
    """RabbitMQ by scripts/broker.sh, with the user that the image would make."""

    def __init__(self, service, directory):
        self.environment = service["environment"]
        self.directory = os.path.join(directory, "broker")

    def start(self):
        sh("scripts/broker.sh", "start", self.directory, "5672", stdout=subprocess.DEVNULL)
        user, password = (self.environment[f"RABBITMQ_DEFAULT_{what}"] for what in ("USER", "PASS"))
        for command in (["add_user", user, password], ["set_permissions", user, ".*", ".*", ".*"], ["delete_user", "guest"]):
            sh("scripts/broker.sh", "ctl", self.directory, "-q", *command, stdout=subprocess.DEVNULL)

    def remove(self):
        sh("scripts/broker.sh", "rm", self.directory)


class Database:
    """PostgreSQL by scripts/postgres.sh, with the files that the image would run at its first start."""

    def __init__(self, service, directory):
        self.service = service
        self.directory = os.path.join(directory, "postgres")
        self.psql = ["scripts/postgres.sh", "psql", self.directory]

    def start(self):
        sh("scripts/postgres.sh", "start", self.directory, "5432", stdout=subprocess.DEVNULL)
        for volume in self.service["volumes"]:
            if volume["target"].startswith("/docker-entrypoint-initdb.d/"):
                sh(*self.psql, "-q", "-f", volume["source"])

    def remove(self):
        sh("scripts/postgres.sh", "rm", self.directory)


def network(directory):
    """Names as in the compose file; and a second network for Prometheus."""
    hosts = os.path.join(directory, "hosts")
    with open(hosts, "w", encoding="utf-8") as file:
        file.write(f"127.0.0.1 localhost rabbitmq postgres\n{POD} pod\n{PROMETHEUS} prometheus\n")
    sh("mount", "--bind", hosts, "/etc/hosts")
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "netns", "add", NETNS)
    sh("ip", "link", "add", "pod0", "type", "veth", "peer", "name", "eth0", "netns", NETNS)
    sh("ip", "addr", "add", f"{POD}/30", "dev", "pod0")
    sh("ip", "link", "set", "pod0", "up")
    for command in (["addr", "add", f"{PROMETHEUS}/30", "dev", "eth0"], ["link", "set", "eth0", "up"], ["link", "set", "lo", "up"]):
        sh("ip", "-n", NETNS, *command)


def await_health(name, service):
    end = time.monotonic() + PATIENCE
    while not service.healthy():
        if time.monotonic() > end:
            sys.exit(f"compose: {name} never gets healthy:\n{service.said()}")
        time.sleep(0.5)
    say(f"{name} is healthy")


def stop(ports, sidecar, app):
    """In the order of the compose file: who depends on others ends first."""
    ports.stop()
    if (status := sidecar.stop()) != 0 or '"drained"' not in sidecar.said():
        sys.exit(f"compose: the sidecar ends with {status}:\n{sidecar.said()}")
    if (status := app.stop()) != 0:
        sys.exit(f"compose: the app ends with {status}:\n{app.said()}")
    say("the sidecar has drained, then the app has ended")


def main():
    path, directory = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        services = json.load(file)["services"]
    os.chmod(directory, 0o755)
    network(directory)
    broker, sidecar = Broker(services["rabbitmq"], directory), Sidecar(services["sidecar"])
    database = Database(services["postgres"], directory)
    app, ports = Process("app", services["app"], directory), Process("host-ports", services["host-ports"], directory)
    prometheus = Process("prometheus", services["prometheus"], directory,
                         prefix=("nsenter", f"--net=/run/netns/{NETNS}"))
    running = []
    try:
        broker.start()
        running.append(broker.remove)
        database.start()
        running.append(database.remove)
        Sidecar(services["migrate"]).once()
        app.start()
        running.append(app.process.kill)
        await_health("app", app)
        running.append(sidecar.remove)
        sidecar.start()
        await_health("sidecar", sidecar)
        ports.start()
        running.append(ports.process.kill)
        await_health("host-ports", ports)
        prometheus.start(["prometheus"])
        running.append(prometheus.process.kill)
        await_health("prometheus", prometheus)
        sh(sys.executable, "scripts/compose/watch.py", path, f"{PROMETHEUS}:9090", *database.psql,
           env={**os.environ, "PUBLISHED": "no"})
        if "attempt=2" not in app.said():
            sys.exit(f"compose: the app was not asked twice:\n{app.said()}")
        sidecar.podman("exec", sidecar.container, "/sidecar", "dlq", "groups")
        stop(ports, sidecar, app)
        say("all of it")
    finally:
        for end in reversed(running):
            end()
        sh("ip", "netns", "del", NETNS)


if __name__ == "__main__":
    main()
