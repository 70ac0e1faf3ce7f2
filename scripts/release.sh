#!/usr/bin/env bash
# release.sh: the archives of a release (.goreleaser.yaml).
#
#   release.sh notes VERSION   prints what CHANGELOG.md says of that version; fails when it says nothing
#   release.sh version VERSION   writes that version into charts, kustomizations and pages: part of the commit that is tagged
#   release.sh ready VERSION   fails unless that has been done and CHANGELOG.md speaks of the version
#   release.sh charts VERSION REGISTRY DIR   packages both charts into DIR, with that version and images from that registry;
#                              RUNBOOKS=URL: where its alerts find docs/runbooks, and its pages what they link to
#   release.sh snapshot        builds archives, checksums and SBOMs into dist/, of what is checked out; publishes nothing
#   release.sh test            snapshot, and checks what came out
#   release.sh publish         what the release workflow runs for a tag: needs GITHUB_TOKEN and cosign
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'release.sh: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p;}' "$0"; }

goreleaser() {
  local tool syft version
  tool=$(scripts/gotool.sh github.com/goreleaser/goreleaser/v2@v2.12.7)
  syft=$(scripts/gotool.sh github.com/anchore/syft/cmd/syft@v1.52.0)
  # The compiler of the image, so that both have the same binary.
  version=$(sed -n 's/^FROM .*golang:\([0-9.]*\).*/\1/p' Dockerfile)
  # It needs the repository's URL. A clone without a remote has none, and publishes nothing either.
  if [ -z "$(git remote)" ]; then
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/owner/amqp-sidecar
  fi
  # What these say would be flags of the build.
  env -u GOFLAGS -u GOAMD64 -u GOARM64 GOTOOLCHAIN="go$version" PATH="$(dirname "$syft"):$PATH" "$tool" "$@"
}

# notes VERSION: the section of CHANGELOG.md, without its heading.
notes() {
  local text
  text=$(awk -v want="## [$1]" 'index($0, "## [") == 1 {on = index($0, want) == 1; next} on' CHANGELOG.md)
  [[ $text = *[![:space:]]* ]] || die "CHANGELOG.md has no section [$1], or an empty one"
  printf '%s\n' "$text"
}

snapshot() {
  goreleaser check
  VERSION=${VERSION:-$(make -s print-VERSION)} goreleaser release --snapshot --clean --skip=sign
}

publish() {
  local version
  version=$(make -s print-VERSION)
  ready "$version"
  mkdir -p .cache
  notes "$version" >.cache/notes.md
  goreleaser release --clean --release-notes .cache/notes.md
}

current() { sed -n 's/^version: *//p' deploy/helm/amqp-sidecar/Chart.yaml; }

# stamp VERSION DIR...: the version that is in the files below becomes VERSION.
stamp() {
  local version=$1 old
  shift
  old=$(current)
  grep -rlF -- "$old" "$@" | xargs -r sed -i "s/\(^\|[^0-9.]\)${old//./\\.}\($\|[^0-9.]\)/\1$version\2/g"
}

# semver VERSION: 1.2.3 or 1.2.3-rc.1. No build metadata: the tag of an image cannot have a plus sign.
semver() {
  local number='(0|[1-9][0-9]*)' word='(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)'
  [[ $1 =~ ^$number\.$number\.$number(-$word(\.$word)*)?$ ]] || die "$1 is no version"
}

# example: the version of the library that the example depends on.
example() { sed -n '/name: amqp-sidecar-lib$/,/repository:/s/^ *version: *//p' examples/helm-library/Chart.yaml; }

ready() {
  semver "$1"
  notes "$1" >/dev/null
  [ "$(current)" = "$1" ] || die "the charts have version $(current), not $1: release.sh version $1"
  [ "$(example)" = "$1" ] || die "examples/helm-library depends on version $(example), not $1: release.sh version $1"
}

# version VERSION: the files that name the version; not the example's own version, which is another one.
version() {
  semver "$1"
  sed -i "/name: amqp-sidecar-lib\$/,/repository:/s/^\( *version:\).*/\1 $1/" examples/helm-library/Chart.yaml
  stamp "$1" deploy docs/kubernetes.md README.md
}

# charts VERSION REGISTRY OUT
charts() {
  local version=$1 registry=$2 out=$3 work helm chart
  helm=$(scripts/helm.sh 4)
  work=$(mktemp -d)
  # The link to the library chart becomes a copy of it.
  cp -rL deploy/helm/amqp-sidecar deploy/helm/amqp-sidecar-lib "$work/"
  stamp "$version" "$work"
  # Both charts have a default of their own.
  grep -rlF 'registry: ""' "$work" | xargs sed -i "s#\(^  *\|{\)registry: \"\"#\1registry: \"$registry\"#"
  sed -i "s|^\( *\)runbookURL: \"\"|\1runbookURL: \"${RUNBOOKS:-}\"|" "$work"/amqp-sidecar/{values.yaml,templates/_defaults.tpl}
  # What the pages link to is not in the packages.
  if [ -n "${RUNBOOKS:-}" ]; then
    sed -i "s#](\.\./\.\./\.\./#]($RUNBOOKS/#g; s#](\.\./#]($RUNBOOKS/deploy/helm/#g; s#](ci)#]($RUNBOOKS/deploy/helm/amqp-sidecar/ci)#g" \
      "$work"/*/README.md "$work"/amqp-sidecar/charts/*/README.md
  fi
  mkdir -p "$out"
  for chart in amqp-sidecar-lib amqp-sidecar; do "$helm" package -d "$out" "$work/$chart" >/dev/null; done
  rm -rf "$work"
}

# name OS ARCH, of the archive; list OS NAME, the files in it; program OS NAME, the bytes of the program.
name() { if [ "$1" = windows ]; then echo "amqp-sidecar_${VERSION}_$1_$2.zip"; else echo "amqp-sidecar_${VERSION}_$1_$2.tar.gz"; fi; }
list() { if [ "$1" = windows ]; then unzip -Z1 "dist/$2"; else tar -tzf "dist/$2"; fi; }
program() { if [ "$1" = windows ]; then unzip -p "dist/$2" sidecar.exe; else tar -xzOf "dist/$2" sidecar; fi; }

# same OS ARCH: the archive's program is the one of `make build`.
same() {
  local os=$1 arch=$2 first second
  GOOS=$os GOARCH=$arch GOTOOLCHAIN=go$(sed -n 's/^FROM .*golang:\([0-9.]*\).*/\1/p' Dockerfile) \
    make -s build OUT="$dir/built" VERSION="$VERSION"
  program "$os" "$(name "$os" "$arch")" >"$dir/released"
  first=$(sha256sum <"$dir/released")
  second=$(sha256sum <"$dir/built")
  [ "$first" = "$second" ] || die "$os/$arch: the archive has another program ($first) than make build ($second)"
  echo "release: $os/$arch: $(stat -c %s "$dir/released") bytes, sha256 ${first%% *}, as make build"
}

look() {
  local archive os arch want got module
  module=$(go list -m -f '{{.Path}}@{{.Version}}' github.com/rabbitmq/amqp091-go)
  (cd dist && sha256sum --quiet -c checksums.txt) || die "the checksums are not those of the files"
  for os in linux darwin windows; do
    for arch in amd64 arm64; do
      archive=$(name "$os" "$arch")
      got=$(list "$os" "$archive" | sort | tr '\n' ' ')
      want="CHANGELOG.md LICENSE README.md sidecar$([ "$os" != windows ] || echo .exe) "
      [ "$got" = "$want" ] || die "$archive holds $got, not $want"
      grep -q " $archive\$" dist/checksums.txt || die "checksums.txt misses $archive"
      grep -q " $archive.sbom.json\$" dist/checksums.txt || die "checksums.txt misses the SBOM of $archive"
      grep -qF "pkg:golang/$module" "dist/$archive.sbom.json" || die "the SBOM of $archive does not name $module"
      same "$os" "$arch"
    done
  done
  got=$(program linux "$(name linux "$(go env GOHOSTARCH)")" >"$dir/run" &&
    chmod +x "$dir/run" && "$dir/run" version)
  [[ $got = "sidecar $VERSION (commit $(make -s print-COMMIT), go"* ]] || die "version says $got"
}

look_at_charts() {
  local helm text
  for helm in 3 4; do
    text=$("$(scripts/helm.sh $helm)" template orders-billing "dist/charts/amqp-sidecar-$VERSION.tgz" --set app.image.repository=orders,app.image.tag=1 \
      --set broker.existingSecret=rabbitmq --set metrics.prometheusRule.enabled=true --api-versions monitoring.coreos.com/v1)
    grep -qE "image: \"?registry.example.com/team/amqp-sidecar:$VERSION\"?\$" <<<"$text" || die "Helm $helm: the chart takes another image"
    grep -qF "helm.sh/chart: amqp-sidecar-$VERSION" <<<"$text" || die "Helm $helm: the chart has another version"
    grep -qF https://git.example.com/blob/v1/docs/runbooks/ <<<"$text" || die "Helm $helm: the alerts name no runbook"
  done
  text=$(tar -xzOf "dist/charts/amqp-sidecar-lib-$VERSION.tgz")
  grep -qF "image: {registry: \"registry.example.com/team\"," <<<"$text" || die "the library takes another image"
  if grep -qF "$(current)" <<<"$text"; then die "the library says the version of the repository"; fi
  grep -qF "](https://git.example.com/blob/v1/examples/helm-library)" <<<"$text" || die "the library's page does not link to its example"
  text+=$(tar -xzOf "dist/charts/amqp-sidecar-$VERSION.tgz")
  if grep -nF '](../' <<<"$text" >&2; then die "a page in a package links to what is not in it"; fi
}

# look_at_versions, in a copy: what is no version is refused, and a version that is written everywhere is ready.
look_at_versions() {
  local tag got
  for tag in 1.2.3.4 1.2.3foo 01.2.3 1.2 v1.2.3 1.2.3- 1.2.3-01 1.2.3+1; do
    got=$(ready "$tag" 2>&1) && die "$tag is ready"
    [[ $got = *"$tag is no version" ]] || die "$tag is refused with: $got"
  done
  for tag in 999.0.0 1.2.3-rc.1 0.10.0-alpha-2.0; do (semver "$tag"); done
  mkdir "$dir/copy"
  git ls-files -z | tar -cf - --null -T - | tar -xf - -C "$dir/copy"
  (
    cd "$dir/copy"
    printf '\n## [999.0.0] - 2026-01-31\n\n- x\n' >>CHANGELOG.md
    if (ready 999.0.0) 2>/dev/null; then die "a version that the charts do not have is ready"; fi
    version 999.0.0
    ready 999.0.0
    git -C "$OLDPWD" show HEAD:examples/helm-library/Chart.yaml >examples/helm-library/Chart.yaml
    if (ready 999.0.0) 2>/dev/null; then die "a version that the example does not have is ready"; fi
    version 999.0.0
  )
  for helm in 3 4; do
    "$(scripts/helm.sh "$helm")" dependency build "$dir/copy/examples/helm-library" >/dev/null ||
      die "Helm $helm: the example does not find its library once a version is written"
  done
}

check() {
  export VERSION=1.2.3-test
  scripts/need.sh unzip unzip
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
  look_at_versions
  if (notes 999.0.0) 2>/dev/null; then die "a version without a section in CHANGELOG.md has notes"; fi
  [[ $(notes Unreleased) = *'### Added'* ]] || die "the notes of [Unreleased] miss what was added"
  snapshot
  look
  RUNBOOKS=https://git.example.com/blob/v1 charts "$VERSION" registry.example.com/team dist/charts
  look_at_charts
  echo "release: archives, checksums, SBOMs, programs and charts are as documented"
}

case ${1:-}:$# in
  notes:2) notes "$2" ;;
  snapshot:1) snapshot ;;
  version:2) version "$2" ;;
  ready:2) ready "$2" ;;
  charts:4) shift && charts "$@" ;;
  publish:1) publish ;;
  test:1) check ;;
  -h:1 | --help:1 | help:1) usage ;;
  *) usage >&2; exit 64 ;;
esac
