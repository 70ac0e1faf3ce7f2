#!/usr/bin/env bash
# image-test.sh: builds the image and checks whether it is what the documentation says: small, without a shell, not root, the
# same binary for the same sources, for both architectures; then lets it handle a message on a private broker and drains it.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

NAME=amqp-sidecar:image-test
LIMIT=$((20 * 1024 * 1024))

if [ "${1:-}" != inside ]; then
  # The broker is this script's, whatever the caller has.
  unset AMQP_URL BROKER_CTL BROKER_VERSION BROKER_DIR
  scripts/need.sh python3 python3
  scripts/need.sh curl curl
  scripts/need.sh amqp-publish amqp-tools
  exec scripts/broker.sh run 0 "$0" inside
fi

say() { printf 'image-test: %s\n' "$*"; }
die() { say "$@" >&2; exit 1; }
if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
  oci() { docker "$@"; }
else
  oci() { scripts/image.sh podman "$@"; }
fi

dir=$(mktemp -d)
box='' app=''
finish() {
  [ -z "$box" ] || oci rm -f "$box" >/dev/null 2>&1 || true
  [ -z "$app" ] || kill "$app" 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# binary FILE.tar: the binary in an image that was written to a file.
binary() {
  local layer
  mkdir "$dir/layers"
  tar -xf "$1" -C "$dir/layers"
  for layer in "$dir"/layers/*.tar "$dir"/layers/*/layer.tar "$dir"/layers/blobs/sha256/*; do
    if tar -tf "$layer" 2>/dev/null | grep -x sidecar >/dev/null; then tar -xOf "$layer" sidecar >"$1.sidecar"; fi
  done
  rm -rf "$dir/layers"
  [ -s "$1.sidecar" ] || die "$1 holds no /sidecar"
}

# machine FILE: the e_machine field of an ELF header, which says what it runs on.
machine() { od -An -tx1 -j18 -N2 "$1" | tr -d ' \n'; }

# same ARCH CODE: the image's binary runs on ARCH, and is the one that `make build` makes from a copy of the sources
# elsewhere, without git and with nothing cached.
same() {
  local arch=$1 tar=$dir/$1.tar copy=$dir/elsewhere/$1 first second
  VERSION=1.2.3 COMMIT=0123456789ab scripts/image.sh build -t "$NAME-$arch" -p "linux/$arch" -o "$tar" >"$dir/build.log" 2>&1 || {
    cat "$dir/build.log" >&2
    die "building for $arch failed"
  }
  binary "$tar"
  [ "$(machine "$tar.sidecar")" = "$2" ] || die "the binary for $arch is made for another machine"
  mkdir -p "$copy"
  git ls-files -z -co --exclude-standard Makefile go.mod go.sum cmd internal | xargs -0 cp --parents -t "$copy"
  (cd "$copy" && CGO_ENABLED='' GOOS=linux GOARCH=$arch GOTOOLCHAIN=go$GO GOCACHE=$dir/cache \
    make -s build OUT=sidecar VERSION=1.2.3 COMMIT=0123456789ab)
  first=$(sha256sum <"$tar.sidecar")
  second=$(sha256sum <"$copy/sidecar")
  [ "$first" = "$second" ] || die "$arch: the image has another binary ($first) than make build ($second)"
  say "$arch: $(stat -c %s "$tar.sidecar") bytes, sha256 ${first%% *}, twice"
}

# config FORMAT WANTED: a field of the image.
config() {
  local got
  got=$(oci image inspect --format "$1" "$image")
  # shellcheck disable=SC2053 # a pattern
  [[ $got = $2 ]] || die "$1 is $got, not $2"
}

image_is_as_documented() {
  local size
  size=$(oci image inspect --format '{{.Size}}' "$image")
  ((size <= LIMIT)) || die "the image has $size bytes, more than $LIMIT"
  say "size $size bytes of at most $LIMIT"
  config '{{.Config.User}}' 65532:65532
  config '{{.Config.Entrypoint}}' '\[/sidecar\]'
  config '{{.Config.ExposedPorts}}' 'map\[9090/tcp:{}\]'
  config '{{.Os}}/{{.Architecture}}' "linux/$arch"
  config '{{index .Config.Labels "org.opencontainers.image.version"}}' 1.2.3
  config '{{index .Config.Labels "org.opencontainers.image.revision"}}' 0123456789ab
  config '{{index .Config.Labels "org.opencontainers.image.licenses"}}' Apache-2.0
  config '{{index .Config.Labels "org.opencontainers.image.title"}}' amqp-sidecar
  config '{{index .Config.Labels "org.opencontainers.image.description"}}' '?*RabbitMQ?*'
  config '{{index .Config.Labels "org.opencontainers.image.created"}}' '20??-??-??T??:??:??Z'
  if locked --rm --network none --entrypoint /bin/sh "$image" -c true >/dev/null 2>&1; then die "it has a shell"; fi
  say "labels, user, entrypoint; no shell"
}

# locked ARG...: run it as the charts do. The health check is run by hand, below: podman itself needs systemd to.
locked() { oci run --no-healthcheck --read-only --cap-drop ALL --security-opt no-new-privileges "$@"; }

commands() {
  local said status=0
  said=$(locked --rm --network none "$image" version)
  [[ $said = "sidecar 1.2.3 (commit 0123456789ab, go$GO)" ]] || die "version says $said"
  said=$(locked --rm --network none -e SIDECAR_CONCURENCY=1 "$image" config 2>&1) || status=$?
  [ $status = 64 ] || die "a wrong configuration ends with $status, not 64: $said"
  [[ $said = *SIDECAR_SERVICE*required*SIDECAR_CONCURENCY*SIDECAR_CONCURRENCY* ]] || die "a wrong configuration says: $said"
  say "version; a wrong configuration ends with 64 and names every mistake"
}

# await WHAT COMMAND...: within a minute.
await() {
  local what=$1 i
  shift
  for ((i = 0; i < 300; i++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.2
  done
  oci logs "$box" >&2
  die "never: $what"
}

# healthy runs the image's own HEALTHCHECK.
healthy() {
  local check
  mapfile -t check < <(oci image inspect --format '{{range (or .HealthCheck .Config.Healthcheck).Test}}{{println .}}{{end}}' "$image")
  [ "${check[0]}" = CMD ] || die "the health check is ${check[*]}"
  oci exec "$box" "${check[@]:1:3}"
}

handles_a_message() {
  local port admin status
  admin=$(scripts/broker.sh port)
  examples/app-python/app.py 0 >"$dir/app" &
  app=$!
  await "the app listens" grep -q listening "$dir/app"
  port=$(sed -n 's#.*127.0.0.1:\([0-9]*\)/.*#\1#p' "$dir/app")
  # The example app is the host's, and so is the broker.
  box=$(locked -d --network host -e SIDECAR_SERVICE=image-test -e SIDECAR_AMQP_URL="$AMQP_URL" \
    -e SIDECAR_APP_URL="http://127.0.0.1:$port/" -e SIDECAR_ADMIN_ADDR="127.0.0.1:$admin" \
    -e SIDECAR_CONTROL_ADDR=127.0.0.1:0 -e SIDECAR_LOG_LEVEL=debug "$image")
  await "the health check succeeds" healthy
  await "it is ready" curl -fsS "http://127.0.0.1:$admin/readyz"
  # With a slash at the end it would ask for a vhost without a name.
  amqp-publish -u "${AMQP_URL%/}" -e image.main-exchange -r '' -p -b '{}'
  await "the app gets the message" grep -q 'POST .* status=200' "$dir/app"
  await "it is acked" sh -c "curl -fsS http://127.0.0.1:$admin/metrics | grep '^sidecar_messages_settled_total{.*outcome=\"ack\".* 1$'"
  say "handles a message; the health check succeeds"
  oci stop -t 30 "$box" >/dev/null
  status=$(oci inspect --format '{{.State.ExitCode}}' "$box")
  [ "$status" = 0 ] || die "SIGTERM: exit $status, not 0"
  oci logs "$box" >"$dir/log" 2>&1
  grep -q drained "$dir/log" || { cat "$dir/log" >&2; die "SIGTERM: no drain in the log"; }
  say "SIGTERM drains and ends with 0"
}

GO=$(sed -n 's/^FROM .*golang:\([0-9.]*\).*/\1/p' Dockerfile)
arch=$(go env GOHOSTARCH)
same amd64 3e00
same arm64 b700
image=$NAME-$arch
image_is_as_documented
commands
handles_a_message
say "all of it"
