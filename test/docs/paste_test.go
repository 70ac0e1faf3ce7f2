package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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

# paste PLACE FILE [TEXT] runs a block and waits until something has printed the text.
paste() {
  echo "=== $1"
  local from i
  from=$(stat -c %s /tmp/output)
  . "$2" </dev/null
  [ -n "${3:-}" ] || return 0
  for ((i = 0; i < 600; i++)); do
    if tail -c "+$from" /tmp/output | grep -qF -- "$3"; then return 0; fi
    sleep 0.1
  done
  echo "$1: nothing has printed \"$3\" within a minute"
  return 1
}

# accept PLACE FILE runs a block of settings, and the sidecar has to accept them.
accept() (
  echo "=== $1"
  export SIDECAR_SERVICE=demo-orders SIDECAR_OUTBOX_DSN=postgres://127.0.0.1/shop
  set -a
  . "$2"
  said=$(bin/sidecar config 2>&1 >/dev/null) && [[ $said != *"not used"* ]] || { echo "$said"; exit 1; }
)

# stop ends a sidecar that the page has left running.
stop() {
  if kill %?sidecar 2>/dev/null; then wait %?sidecar; fi
}
`

// bench is what the pages but README.md expect: a broker, a database, an app, and the sidecar in the PATH.
const bench = `
make build
scripts/postgres.sh start /tmp/postgres 5433 &
scripts/broker.sh start /tmp/rabbit 5672
wait
export PATH=$PWD/bin:$PATH DATABASE_URL='postgres://postgres@127.0.0.1:5433/postgres?sslmode=disable'
examples/app-python/app.py 8080 &
`

// before is what a page expects in addition.
var before = map[string]string{
	"docs/publish.md": `
SIDECAR_SERVICE=audit-log SIDECAR_EXCHANGE=audit.events sidecar plan --format definitions >/tmp/audit.json
/tmp/rabbit/rabbitmqctl -q import_definitions /tmp/audit.json
SIDECAR_SERVICE=demo-orders SIDECAR_PUBLISH_ADDR=127.0.0.1:9092 SIDECAR_PUBLISH_EXCHANGES=audit=audit.events,queues=amq.default sidecar &
curl -fs --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:9090/readyz
`,
}

// TestPaste pastes the blocks of README.md, from top to bottom, into one shell, and those of all other pages into
// another one.
func TestPaste(t *testing.T) {
	t.Parallel()
	t.Run("README", func(t *testing.T) {
		t.Parallel()
		paste(t, "", "README.md")
	})
	t.Run("others", func(t *testing.T) {
		t.Parallel()
		others := slices.DeleteFunc(pages(t), func(page string) bool { return page == "README.md" })
		paste(t, bench, others...)
	})
}

// paste runs the blocks of the pages in a session that has run setup.
func paste(t *testing.T, setup string, pages ...string) {
	t.Helper()
	dir := t.TempDir()
	clone(t, filepath.Join(dir, "clone"))
	script := session + setup
	for _, page := range pages {
		script += "(\n" + before[page] // its variables are its own
		for _, b := range blocksOf(t, page) {
			if !b.runs() {
				continue
			}
			file := fmt.Sprintf("%s-%d.sh", strings.ReplaceAll(page, "/", "-"), b.line)
			write(t, filepath.Join(dir, file), b.text)
			run, prints := "paste", ""
			if b.settings() {
				run = "accept"
			}
			if text, ok := strings.CutPrefix(b.comment, "prints: "); ok {
				prints = text
			}
			script += fmt.Sprintf("%s %s:%d /tmp/%s '%s'\n", run, page, b.line, file, prints)
		}
		script += "stop\n)\n"
	}
	enter(t, dir, script)
}

// enter runs a script in namespaces of its own.
func enter(t *testing.T, dir, script string) {
	t.Helper()
	args := []string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Getuid() != 0 {
		args = append([]string{"--user", "--map-current-user", "--keep-caps"}, args...)
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", append(args, "true")...).CombinedOutput(); err != nil {
		t.Fatalf("blocks are pasted in namespaces, which cannot be made here: be root, or let users make them "+
			"(sysctl kernel.apparmor_restrict_unprivileged_userns=0 kernel.unprivileged_userns_clone=1): %v\n%s", err, out)
	}
	write(t, filepath.Join(dir, "session.sh"), script)
	write(t, filepath.Join(dir, "output"), "")
	output, err := os.OpenFile(filepath.Join(dir, "output"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
