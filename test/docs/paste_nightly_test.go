//go:build nightly

package docs

import (
	"slices"
	"testing"
)

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

// TestPasteOthers pastes the blocks of all pages but README.md into one shell.
func TestPasteOthers(t *testing.T) {
	t.Parallel()
	script := bench
	for _, page := range pages(t) {
		if page != "README.md" {
			script += sectionOf(page, before[page], slices.DeleteFunc(blocksOf(t, page), func(b block) bool { return !b.runs() }))
		}
	}
	enter(t, script)
}
