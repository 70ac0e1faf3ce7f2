#!/usr/bin/env bash
# producers.sh: what the producers of test/producers send, and whether apps can read it. test/producers/cases.tsv has a line
# for each message: a name, where the version of its library is found, and the command that sends it.
#
#   producers.sh record       writes test/producers/sent.json
#   producers.sh test         each message to five apps, through bin/sidecar
#   producers.sh send         sends each message once and prints "name<tab>version"; for the two above
#
# It needs root, apt-get and npm for what it installs, and RabbitMQ 4.3: older ones have no AMQP 1.0 of their own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$PWD/.cache/producers

# install makes a copy of test/producers with everything that its programs need.
install() {
  for need in "python3:kombu python3-kombu" "python3:celery python3-celery" "python3:pika python3-pika" "python3:stomp python3-stomp" \
    "python3:aio_pika python3-aio-pika" "python3:proton python3-qpid-proton" "python3:paho.mqtt python3-paho-mqtt" \
    "python3:flask python3-flask" "mosquitto_pub mosquitto-clients" "amqp-publish amqp-tools" "php:amqp php-cli php-amqp" "php:xml php-xml" \
    "/usr/share/php/PhpAmqpLib php-amqplib" "/usr/share/java/amqp-client.jar librabbitmq-client-java" \
    "/usr/share/php/Symfony/Component/Messenger/Bridge/Amqp php-symfony-amqp-messenger php-symfony-serializer php-symfony-property-access" \
    "ruby:bunny ruby ruby-bunny" "javac default-jdk-headless" \
    "/usr/share/java/jackson-databind.jar libjackson2-databind-java" "node nodejs" "npm npm"; do
    # shellcheck disable=SC2086 # a command and its packages
    scripts/need.sh $need
  done
  mkdir -p "$work"
  cp -r test/producers/. "$work/"
  if ! cmp -s "$work/package-lock.json" "$work/installed.json"; then
    echo "fetching the packages of test/producers (once)" >&2
    (cd "$work" && npm ci --silent --ignore-scripts --no-audit --no-fund >&2)
    cp "$work/package-lock.json" "$work/installed.json"
  fi
  go build -C test/producers/go -o "$work/go-producers" .
  go build -C test/producers/go -o "$work/go-app" ./app
}

version_of() { # deb:PACKAGE, npm:PACKAGE or go:MODULE
  case $1 in
    deb:*) dpkg-query -W -f '${Version}' "${1#*:}" | sed 's/^[0-9]*://; s/[-+].*//' ;;
    npm:*) node -p 'JSON.parse(fs.readFileSync(`node_modules/${process.argv[1]}/package.json`)).version' "${1#*:}" ;;
    go:*) go version -m go-producers | awk -v m="${1#*:}" '$1 == "dep" && $2 == m {print substr($3, 2)}' ;;
  esac
}

send() {
  cd "$work"
  while IFS=$'\t' read -r name library command; do
    KEY=orders.$name timeout 60 bash -euc "$command" >&2 </dev/null || { echo "producers: $name failed" >&2; exit 1; }
    printf '%s\t%s\n' "$name" "$(version_of "$library")"
  done <cases.tsv
}

with_broker() {
  BROKER_MQTT=$(scripts/broker.sh port)
  BROKER_STOMP=$(scripts/broker.sh port)
  export BROKER_MQTT BROKER_STOMP EXCHANGE=shop.events TEST_BROKER_VERSION=4.3 BROKER_DATA=memory
  # shellcheck disable=SC2016 # of the inner shell. Not every library takes an empty virtual host for the default one.
  scripts/broker.sh run 0 bash -euc 'export AMQP_URL=${AMQP_URL%/}/%2F; "$@"' with_broker "$@"
}

case ${1:-} in
  record)
    install
    go build -o "$work/recorder" ./test/producers/record
    # shellcheck disable=SC2016 # of the shell beside the broker
    with_broker bash -euc '"$0" "$AMQP_URL" "$EXCHANGE" "$BROKER_VERSION" scripts/producers.sh send' "$work/recorder" >"$work/sent.json"
    cp "$work/sent.json" test/producers/sent.json ;;
  test)
    install
    with_broker /usr/bin/python3 "$work/matrix.py" ;;
  send) send ;;
  *) sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p;}' "$0" >&2; exit 64 ;;
esac
