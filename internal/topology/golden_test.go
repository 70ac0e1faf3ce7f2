package topology

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// goldens are the plans whose pictures are kept.
func goldens(t *testing.T) map[string]*Plan {
	return map[string]*Plan{
		"fanout":        build(t, Options{Service: "wms-cincout"}),
		"fanout-quorum": build(t, Options{Service: "wms-cincout", QueueType: "quorum"}),
		"fanout-tiers":  build(t, Options{Service: "wms-cincout", RetryDelays: []time.Duration{30 * time.Second, 5 * time.Minute}}),
		"fanout-foreign": build(t, Options{
			Service: "wms-cincout", DLX: "wms.dlx", Exchange: "amq.topic", ExchangeType: "topic",
			Bindings: []Binding{{Exchange: "amq.topic", Key: "a.#"}, {Exchange: "foreign", Key: `"k"`}},
		}),
	}
}

func TestGolden(t *testing.T) {
	for name, p := range goldens(t) {
		definitions, err := p.Definitions("/")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".txt", p.Text())
		golden(t, name+".mmd", p.Mermaid())
		golden(t, name+".json", string(definitions))
	}
	for name, p := range otherShapes(t) {
		if p.Text() == "" || !strings.HasPrefix(p.Mermaid(), "flowchart") {
			t.Errorf("%s cannot be drawn", name)
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it):\n%s", name, got)
	}
}

func TestDefinitionsThatCannotBeWritten(t *testing.T) {
	p := &Plan{Service: "wms-cincout", Queues: []Queue{{Args: amqp.Table{"x": make(chan int)}}}}
	if b, err := p.Definitions("/"); err == nil || b != nil || !strings.Contains(err.Error(), "wms-cincout") {
		t.Errorf("%s, %v", b, err)
	}
}
