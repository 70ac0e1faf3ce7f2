package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// session is the bash that blocks are pasted into. It is the init of namespaces of its own, in which every port is free
// and /tmp is empty but for the clone; what the blocks have started ends with it.
const session = `
set -e
for cache in $(go env GOCACHE GOMODCACHE); do # below /tmp they stay where they are
  [[ $cache != /tmp/* ]] || { mkdir -p "$1${cache#/tmp}" && mount --bind "$cache" "$1${cache#/tmp}"; }
done
mount --rbind "$1" /tmp
ip link set lo up
cd /tmp/clone

# paste PLACE TEXT runs the block of its standard input and waits until something has printed the text.
paste() {
  echo "=== $1"
  local from i
  from=$(stat -c %s /tmp/output)
  cat >/tmp/block
  . /tmp/block </dev/null
  for ((i = 0; i < 600; i++)); do
    if tail -c "+$from" /tmp/output | grep -qF -- "$2"; then return 0; fi
    sleep 0.1
  done
  echo "$1: nothing has printed \"$2\" within a minute"
  return 1
}

# accept PLACE runs a block of settings, and the sidecar has to accept them.
accept() (
  echo "=== $1"
  export SIDECAR_SERVICE=demo-orders SIDECAR_OUTBOX_DSN=postgres://127.0.0.1/shop
  set -a
  . /dev/stdin
  said=$(bin/sidecar config 2>&1 >/dev/null) && [[ $said != *"not used"* ]] || { echo "$said"; exit 1; }
)

# stop ends a sidecar that the page has left running.
stop() {
  if kill %?sidecar 2>/dev/null; then wait %?sidecar; fi
}
`

// TestPaste pastes the blocks of README.md, from top to bottom, into one shell, in which the sidecar that they have
// built has to accept the settings of all other pages then.
func TestPaste(t *testing.T) {
	t.Parallel()
	readme := slices.DeleteFunc(blocksOf(t, "README.md"), func(b block) bool { return !b.runs() })
	script := sectionOf("README.md", "", readme)
	for _, page := range pages(t) {
		if page != "README.md" {
			script += sectionOf(page, "", slices.DeleteFunc(blocksOf(t, page), func(b block) bool { return !b.runs() || !b.settings() }))
		}
	}
	enter(t, script)
}

// sectionOf is the part of a script that runs blocks of a page after setup. Its variables are its own.
func sectionOf(page, setup string, blocks []block) string {
	var script strings.Builder
	fmt.Fprintf(&script, "(\n%s", setup)
	for _, b := range blocks {
		run, place := "paste", fmt.Sprintf("%s:%d", page, b.line)
		if b.settings() {
			run = "accept"
		}
		prints, _ := strings.CutPrefix(b.comment, "prints: ")
		fmt.Fprintf(&script, "%s %s '%s' <<'BLOCK'\n%sBLOCK\n", run, place, prints, b.text)
	}
	return script.String() + "stop\n)\n"
}

// enter runs a script in a session of its own.
func enter(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	clone(t, filepath.Join(dir, "clone"))
	args := []string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Getuid() != 0 {
		args = append([]string{"--user", "--map-current-user", "--keep-caps"}, args...)
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", append(args, "true")...).CombinedOutput(); err != nil {
		t.Fatalf("blocks are pasted in namespaces, which cannot be made here: be root, or let users make them "+
			"(sysctl kernel.apparmor_restrict_unprivileged_userns=0 kernel.unprivileged_userns_clone=1): %v\n%s", err, out)
	}
	write(t, filepath.Join(dir, "session.sh"), session+script)
	write(t, filepath.Join(dir, "output"), "")
	output := must.Get(os.OpenFile(filepath.Join(dir, "output"), os.O_WRONLY|os.O_APPEND, 0))(t)
	defer func() { _ = output.Close() }()
	cmd := exec.CommandContext(t.Context(), "unshare", append(args, "bash", filepath.Join(dir, "session.sh"), dir)...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = append(os.Environ(), "TMPDIR=/tmp", "TEST_BROKER=package", "TEST_BROKER_VERSION=", "BROKER_EXTRA_CONF=")
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(filepath.Join(dir, "output"))
		t.Errorf("a block failed: %v\n%s", err, said)
	}
}

// clone copies the repository as it is now, without what git ignores.
func clone(t *testing.T, dir string) {
	t.Helper()
	const copyFiles = `set -o pipefail; mkdir "$1"; chmod 1777 "$1/.."
git ls-files -co --exclude-standard --deduplicate -z | tar -c --null --ignore-failed-read -T - 2>/dev/null | tar -x -C "$1"`
	cmd := exec.CommandContext(t.Context(), "bash", "-c", copyFiles, "bash", dir)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot copy the repository: %v\n%s", err, out)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
}
