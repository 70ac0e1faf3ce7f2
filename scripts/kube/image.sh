#!/usr/bin/env bash
# image.sh NAME BINARY FILE.tar: an image of nothing but one static binary, as a docker archive; needs no tool for images.
# It runs as /BINARY, as a user without a name.
set -euo pipefail

name=$1 binary=$2 out=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/root"
cp "$binary" "$work/root/"
# Same binary, same image.
plain=(--owner=0 --group=0 --numeric-owner --mtime=@0 --sort=name)
tar "${plain[@]}" -C "$work/root" -cf "$work/layer.tar" "$(basename "$binary")"
layer=$(sha256sum "$work/layer.tar")
cat >"$work/config.json" <<END
{"architecture": "$(go env GOARCH)", "os": "linux",
 "config": {"User": "65532:65532", "Entrypoint": ["/$(basename "$binary")"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:${layer%% *}"]}}
END
echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"$name\"], \"Layers\": [\"layer.tar\"]}]" >"$work/manifest.json"
tar "${plain[@]}" -C "$work" -cf "$out" manifest.json config.json layer.tar
