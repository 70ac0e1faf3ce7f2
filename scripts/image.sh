#!/usr/bin/env bash
# image.sh: the container image.
#
#   image.sh build [-t NAME[:TAG]] [-o FILE.tar] [-p OS/ARCH]   builds it; -o writes it as `docker save` does
#   image.sh podman ARG...      podman, for what is in the store that buildah builds into
#   image.sh publish NAME VERSION FILE   what the release workflow runs: both architectures, with SBOM and provenance, pushed to
#                               a registry; the digest goes to FILE
#   image.sh test               builds it and checks whether it is what the documentation says (scripts/image-test.sh)
#
# Default name amqp-sidecar:dev, default platform the machine's. VERSION, COMMIT and SOURCE (the URL of the sources, for a
# label) are taken from the environment; the first two default to what git says, as in the Makefile.
#
# A docker engine builds it when there is one, else buildah (Debian's package, as root) in a store of its own. Where the
# registries cannot be reached buildah takes stand-ins for the two base images, made of this machine's Go, shell, make and
# certificates: the binary is the same to the bit, the base is not the real one, and the label amqp-sidecar.base=stand-in
# says so.
#   IMAGE_STORE      where the store is, default ~/.cache/sidecar-images; image.sh podman system reset empties it
#   STORAGE_DRIVER   overlay (default), or vfs where the filesystem cannot do overlays
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

STORE=${IMAGE_STORE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/sidecar-images}
NAME=amqp-sidecar:dev

say() { printf 'image.sh: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }
usage() { sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p;}' "$0"; }

engine() { command -v docker >/dev/null && docker info >/dev/null 2>&1; }

# store makes the private store: nothing of /var/lib/containers is used or changed.
store() {
  [ "$(id -u)" = 0 ] || die "no docker engine: building with buildah needs root"
  mkdir -p "$STORE/run" "$STORE/tmp"
  export CONTAINERS_STORAGE_CONF=$STORE/storage.conf CONTAINERS_REGISTRIES_CONF=$STORE/registries.conf
  export CONTAINERS_CONF=$STORE/containers.conf XDG_RUNTIME_DIR=$STORE/run TMPDIR=$STORE/tmp
  printf '[storage]\ndriver = "%s"\ngraphroot = "%s"\nrunroot = "%s"\n' \
    "${STORAGE_DRIVER:-overlay}" "$STORE/storage" "$STORE/run/storage" >"$CONTAINERS_STORAGE_CONF"
  printf 'unqualified-search-registries = ["docker.io"]\nshort-name-mode = "permissive"\n' >"$CONTAINERS_REGISTRIES_CONF"
  # runc runs on every arrangement of cgroups, podman's own choice does not.
  # Its default limits are above those of many a machine, and root inside a container may not raise them.
  printf '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n[containers]\n' >"$CONTAINERS_CONF"
  printf 'default_ulimits = ["nofile=1024:%s", "nproc=4096:4096"]\n' "$(ulimit -Hn | sed s/unlimited/1048576/)" >>"$CONTAINERS_CONF"
}

# base NAME: the base image that the Dockerfile takes for golang or distroless/static, with its digest.
base() { sed -n "s#^FROM \(.* \)\?\([^ =]*$1:[^ ]*\).*#\2#p" Dockerfile; }

# bases gets the base images, or makes the stand-ins: prints real or stand-in.
bases() {
  local golang static
  golang=docker.io/library/$(base golang)
  static=$(base distroless/static)
  if timeout 300 buildah pull -q --policy always "$golang" >/dev/null 2>"$STORE/pull.log" &&
    timeout 300 buildah pull -q --policy always "$static" >/dev/null 2>>"$STORE/pull.log"; then
    echo real
    return
  fi
  say "the registries cannot be reached (log: $STORE/pull.log): building on stand-ins for $golang and $static"
  standin_golang "${golang%@*}"
  standin_static "${static%@*}"
  echo stand-in
}

# commit TAG DIR [CONFIG...]: an image of the files in DIR.
commit() {
  local tag=$1 dir=$2 container
  shift 2
  container=$(buildah from scratch)
  buildah add -q "$container" "$dir" / >/dev/null
  buildah config --label amqp-sidecar.base=stand-in "$@" "$container"
  buildah commit -q --rm --timestamp 0 "$container" "$tag" >/dev/null
}

# standin_golang holds what `make build` runs; the Go installation is mounted when it builds.
standin_golang() {
  local root=$STORE/golang file
  scripts/need.sh make make
  rm -rf "$root"
  mkdir -p "$root"/{bin,usr/bin,tmp,root,go,src}
  for file in bash make; do
    cp -L "$(command -v "$file")" "$root/usr/bin/"
    # Both the loader and the libraries, where this machine has them.
    ldd "$(command -v "$file")" | grep -o '/[^ ]*' | while read -r lib; do
      mkdir -p "$root$(dirname "$lib")"
      cp -L "$lib" "$root$lib"
    done
  done
  for file in sh bash; do ln -sf /usr/bin/bash "$root/bin/$file"; done
  commit "$1" "$root" --env PATH=/usr/local/go/bin:/usr/bin:/bin --env GOPATH=/go --env GOTOOLCHAIN=local --env HOME=/root
}

standin_static() {
  local root=$STORE/static certificates=/etc/ssl/certs/ca-certificates.crt
  [ -s "$certificates" ] || die "$certificates is missing: apt-get install ca-certificates"
  rm -rf "$root"
  mkdir -p "$root"/{etc/ssl/certs,home/nonroot,tmp,usr/share}
  chmod 1777 "$root/tmp"
  cp "$certificates" "$root$certificates"
  [ ! -d /usr/share/zoneinfo ] || cp -a /usr/share/zoneinfo "$root/usr/share/"
  printf '%s:x:%s\n' root 0:0:root:/root:/sbin/nologin nonroot 65532:65532:nonroot:/home/nonroot:/sbin/nologin >"$root/etc/passwd"
  printf '%s:x:%s:\n' root 0 nonroot 65532 >"$root/etc/group"
  commit "$1" "$root" --user 65532 --workingdir /home/nonroot --env "SSL_CERT_FILE=$certificates"
}

# build_buildah NAME OS ARCH ARGS...
build_buildah() {
  local name=$1 os=$2 arch=$3 version goroot source epoch=$4 file=Dockerfile
  shift 4
  scripts/need.sh buildah buildah
  store
  # One build at a time: two would make each other's stand-ins.
  exec 9>"$STORE/lock"
  flock 9
  source=$(bases)
  if [ "$source" = stand-in ]; then
    # The Go of the Dockerfile, whichever this machine's own is.
    version=$(base golang)
    version=${version%@*}
    goroot=$(GOTOOLCHAIN=go${version#golang:} go env GOROOT)
    # Nothing that was made here has the digest of the real one.
    file=$STORE/Dockerfile
    sed 's/@sha256:[0-9a-f]*//' Dockerfile >"$file"
    go mod download
    set -- "$@" --pull-never -v "$goroot:/usr/local/go:ro" \
      -v "$(go env GOMODCACHE)/cache/download:/goproxy:ro" --build-arg GOPROXY=file:///goproxy
  fi
  # Format docker: the OCI format has no health check. A chroot needs no runtime, so it works inside a container too.
  buildah build --isolation chroot --network host --format docker --layers=false --timestamp "$epoch" \
    --platform "$os/$arch" --build-arg BUILDPLATFORM="linux/$(go env GOHOSTARCH)" --build-arg TARGETOS="$os" --build-arg TARGETARCH="$arch" -t "$name" "$@" -f "$file" . >&2
  # What the new images have replaced.
  buildah rmi --prune >/dev/null 2>&1 || true
}

# arguments sets epoch and args: what the Dockerfile asks for, from git unless the environment says it.
arguments() {
  local created
  epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
  created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
  args=(--build-arg "VERSION=${VERSION:-$(make -s print-VERSION)}" --build-arg "COMMIT=${COMMIT:-$(make -s print-COMMIT)}"
    --build-arg "CREATED=$created" --build-arg "SOURCE=${SOURCE:-}")
}

build() {
  local name=$NAME out='' platform='' opt epoch args
  while getopts t:o:p: opt; do
    case $opt in
      t) name=$OPTARG ;;
      o) out=$OPTARG ;;
      p) platform=$OPTARG ;;
      *) usage >&2; exit 64 ;;
    esac
  done
  shift $((OPTIND - 1))
  [ $# = 0 ] || { usage >&2; exit 64; }
  platform=${platform:-linux/$(go env GOHOSTARCH)}
  [[ ${name##*/} = *:* ]] || name=$name:dev
  arguments
  if engine; then
    docker buildx version >/dev/null 2>&1 || die "docker has no buildx: install docker-buildx"
    docker buildx build --load --platform "$platform" --build-arg "SOURCE_DATE_EPOCH=$epoch" -t "$name" "${args[@]}" . >&2
    [ -z "$out" ] || docker save -o "$out" "$name"
  else
    build_buildah "localhost/$name" "${platform%%/*}" "${platform#*/}" "$epoch" "${args[@]}"
    # The archive appends to a file that is there.
    if [ -n "$out" ]; then rm -f "$out"; buildah push -q "localhost/$name" "docker-archive:$out:$name" >&2; fi
  fi
  say "built $name for $platform${out:+, written to $out}"
}

# publish NAME VERSION FILE. 1.2.3 is also 1.2 and latest; 1.2.3-rc.1 is neither.
publish() {
  local name=$1 VERSION=$2 file=$3 epoch args tags
  engine || die "publishing needs a docker engine"
  arguments
  tags=(-t "$name:$VERSION")
  [[ $VERSION = *-* ]] || tags+=(-t "$name:${VERSION%.*}" -t "$name:latest")
  mkdir -p "$(dirname "$file")"
  # The engine's own builder makes neither several platforms nor attestations.
  docker buildx create --name sidecar-publish --driver docker-container >/dev/null
  trap 'docker buildx rm sidecar-publish >/dev/null 2>&1' EXIT
  docker buildx build --builder sidecar-publish --platform linux/amd64,linux/arm64 --sbom=true --provenance=mode=max \
    --build-arg "SOURCE_DATE_EPOCH=$epoch" --output type=image,push=true,rewrite-timestamp=true \
    --metadata-file "$file.json" "${args[@]}" "${tags[@]}" .
  sed -n 's/.*"containerimage.digest": *"\(sha256:[0-9a-f]*\)".*/\1/p' "$file.json" | head -n 1 >"$file"
  [ -s "$file" ] || die "the builder names no digest"
}

podman_here() {
  scripts/need.sh podman podman
  scripts/need.sh runc runc
  store
  exec podman "$@"
}

case ${1:-}:$# in
  build:*) shift && build "$@" ;;
  podman:[2-9] | podman:[1-9][0-9]*) shift && podman_here "$@" ;;
  publish:4) shift && publish "$@" ;;
  test:1) exec scripts/image-test.sh ;;
  -h:1 | --help:1 | help:1) usage ;;
  *) usage >&2; exit 64 ;;
esac
