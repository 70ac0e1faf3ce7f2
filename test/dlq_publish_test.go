package test

import (
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

// TestDLQExportCanBePublished: piped to /publish:batch, an export sends each message again, as it was and where it was
// sent first.
func TestDLQExportCanBePublished(t *testing.T) {
	t.Parallel()
	sc := publishing(t).with("MAX_RETRIES", "1", "PUBLISH_EXCHANGES", "audit=amq.topic")
	copies := sc.prefix + ".copies"
	must.Do(t, sc.declare(copies, nil))
	s := sc.run()
	list := messages("json", "text", "bytes")
	list[0].Headers = amqp.Table{"attempt": int32(3), "rates": []any{float32(1.5), amqp.Table{"at": time.Unix(1700000000, 0)}}, "tenant": "é"}
	list[1].ContentType, list[1].Body, list[1].Priority, list[1].CorrelationId = "text/plain", []byte("a\u202eb\n"), 4, "c"
	list[2].Body, list[2].Headers = []byte{0, 255}, amqp.Table{"raw": []byte{1, 255}, "n": int64(1 << 60)}
	for _, m := range list {
		sc.app.on(m.MessageId, status(503), status(503), status(200))
		sc.sendMessage(m)
		s.awaitOutcome(m.MessageId, "park")
	}
	sc.bind(copies, "", sc.exchange())
	pipe := exec.CommandContext(t.Context(), "sh", "-c",
		`"$SIDECAR" dlq export - -q | curl -sS --data-binary @- -H 'Content-Type: application/jsonl' "http://$ENDPOINT/publish:batch"`)
	pipe.Env = append(environ(sc.env), "SIDECAR="+program, "ENDPOINT="+s.endpoint)
	if out, err := pipe.CombinedOutput(); err != nil || strings.Count(string(out), `"status":204}`) != len(list) {
		t.Fatalf("%v: %s", err, out)
	}
	for i, got := range sc.take(copies, len(list)) {
		delete(got.Headers, "traceparent") // of the sidecar
		want := list[i]
		if got.MessageId != want.MessageId || string(got.Body) != string(want.Body) || got.ContentType != want.ContentType || got.Priority != want.Priority || got.CorrelationId != want.CorrelationId ||
			got.RoutingKey != "order.created" || len(want.Headers) != len(got.Headers) || len(want.Headers) > 0 && !reflect.DeepEqual(got.Headers, want.Headers) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if d := sc.app.await(want.MessageId, 3)[2]; d.number("Amqp-Retry-Count") != 0 || d.value("Amqp-Routing-Key") != "order.created" || d.value("Amqp-Exchange") != sc.exchange() {
			t.Errorf("%v", d.header)
		}
	}
	sc.settledAll(s, len(list)) // they are parked still
}
