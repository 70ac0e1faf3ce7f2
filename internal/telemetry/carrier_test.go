package telemetry

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

const (
	parent  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traceID = "0af7651916cd43dd8448eb211c80319c"
)

func TestValidTraceparent(t *testing.T) {
	t.Parallel()
	ids := "-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"
	for s, want := range map[string]bool{
		parent:                 true,
		"00" + ids + "00":      true,
		"01" + ids + "01":      true,
		"01" + ids + "01-more": true,
		"01" + ids + "01-" + strings.Repeat("x", 200): true,

		"":                        false,
		"00":                      false,
		parent[:54]:               false,
		parent + "-more":          false, // version 00 ends here
		parent + "\r\nHost: evil": false,
		"ff" + ids + "01":         false,
		"00" + ids + "0g":         false,
		"01" + ids + "01more":     false,
		"01" + ids + "01-\r\n":    false,
		strings.ToUpper(parent):   false,
		"01" + ids + "01-" + strings.Repeat("x", 300):                false,
		"00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01":    false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01":    false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01":    false,
		"00-0af7651916cd43dd8448eb211c80319\n-b7ad6b7169203331-01":   false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333\x00-01": false,
	} {
		if got := validTraceparent(s); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}

// TestATraceIDIsOfTheMessage: a message without a traceparent has the same trace id at each attempt and each publish,
// and another one than any other message.
func TestATraceIDIsOfTheMessage(t *testing.T) {
	t.Parallel()
	at := time.Unix(1700000000, 0)
	messages := []Attrs{
		{MessageID: "m"}, {MessageID: "m", CorrelationID: "c"}, {MessageID: "mc"}, {MessageID: "m", Timestamp: at},
		{MessageID: strings.Repeat("m", 255), CorrelationID: strings.Repeat("c", 255)}, {}, {CorrelationID: "c"},
	}
	seen := make(map[string]int)
	for i, a := range messages {
		again := a
		again.RetryCount, again.Redelivered, again.DeliveryTag = 3, true, 7
		one, two := newTraceparent(&a), newTraceparent(&again)
		if !validTraceparent(one) || !strings.HasSuffix(one, "-00") || one == two {
			t.Errorf("%+v: %q and %q, want two spans", a, one, two)
		}
		if same := one[:36] == two[:36]; same != (a.MessageID != "") {
			t.Errorf("%+v: %q and %q", a, one, two)
		}
		if other, found := seen[one[:36]]; found {
			t.Errorf("%+v has the trace of %+v", a, messages[other])
		}
		seen[one[:36]] = i
	}
}

func TestParseTraceparent(t *testing.T) {
	t.Parallel()
	sc := parseTraceparent(parent, "a=1,b=2")
	if sc.TraceID().String() != traceID || sc.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("ids: %v", sc)
	}
	if !sc.IsSampled() || !sc.IsRemote() || sc.TraceState().String() != "a=1,b=2" {
		t.Errorf("got %+v", sc)
	}
	sc = parseTraceparent(parent, "not a list")
	if !sc.IsValid() || sc.TraceState().Len() != 0 {
		t.Errorf("a bad tracestate must not cost the parent: %+v", sc)
	}
}

func TestCarrierFrom(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		headers amqp.Table
		want    Carrier
	}{
		"nil":   {nil, Carrier{}},
		"other": {amqp.Table{"x": "y"}, Carrier{}},
		"text":  {amqp.Table{"traceparent": parent, "tracestate": "a=1", "baggage": "k=v"}, Carrier{parent, "a=1", "k=v"}},
		"bytes": {amqp.Table{"traceparent": []byte(parent), "tracestate": []byte("a=1"), "baggage": []byte("k=v")}, Carrier{parent, "a=1", "k=v"}},
		"upper": {amqp.Table{"Traceparent": parent, "TRACESTATE": "a=1"}, Carrier{}},
		"types": {amqp.Table{"traceparent": int64(1), "tracestate": nil, "baggage": []any{"k=v"}}, Carrier{}},
		"long": {amqp.Table{
			"traceparent": strings.Repeat("0", 1<<20), "tracestate": []byte(strings.Repeat("a", 513)), "baggage": strings.Repeat("a", 8193),
		}, Carrier{}},
		"longest": {
			amqp.Table{"tracestate": strings.Repeat("a", 512), "baggage": strings.Repeat("a", 8192)},
			Carrier{Tracestate: strings.Repeat("a", 512), Baggage: strings.Repeat("a", 8192)},
		},
	}
	for name, tt := range tests {
		if got := CarrierFrom(tt.headers); got != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestOffReplacesOnlyWhatIsInvalid(t *testing.T) {
	t.Parallel()
	var off *Tracing
	tests := map[string]struct{ in, want Carrier }{
		"a valid context":     {Carrier{parent, "vendor=1, other=2", "user=7"}, Carrier{parent, "vendor=1, other=2", "user=7"}},
		"no context":          {Carrier{}, Carrier{}},
		"orphaned tracestate": {Carrier{Tracestate: "a=1", Baggage: "k=v"}, Carrier{Baggage: "k=v"}},
		"bad traceparent":     {Carrier{parent + "\r\nX: y", "a=1", "k=v"}, Carrier{Baggage: "k=v"}},
		"bad tracestate":      {Carrier{parent, "a=1\r\nX: y", "k=v"}, Carrier{parent, "", "k=v"}},
		"bad baggage":         {Carrier{parent, "a=1", "k=v\nX: y"}, Carrier{parent, "a=1", ""}},
		"non-ASCII":           {Carrier{parent, "ä=1", "k=ö"}, Carrier{parent, "", ""}},
		"DEL and NUL":         {Carrier{parent, "a=\x7f", "k=\x00"}, Carrier{parent, "", ""}},
		"too long":            {Carrier{parent, strings.Repeat("a", 513), strings.Repeat("a", 8193)}, Carrier{parent, "", ""}},
	}
	for name, tt := range tests {
		s := off.Process(tt.in, Attrs{})
		got := s.Client()
		if tt.want.Traceparent == "" {
			if !validTraceparent(got.Traceparent) || s.TraceID() != got.Traceparent[3:35] {
				t.Errorf("%s: no fresh traceparent: %q", name, got.Traceparent)
			}
			got.Traceparent = ""
		}
		if got != tt.want || tt.want.Traceparent != "" && s.TraceID() != traceID {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
		s.ClientEnd(true, 500, "", "")
		s.Send("", "q")
		s.SendEnd(nil)
		s.Settle("ack")
		s.End("ack", "success")
	}
	must.Do(t, off.Shutdown(t.Context()))
}

// Whatever a publisher writes, what goes on is a valid traceparent and values that HTTP accepts.
func FuzzProcessOff(f *testing.F) {
	f.Add(parent, "a=1", "k=v")
	f.Add("01"+parent[2:]+"-x", "a=1\r\n", "\x00")
	f.Fuzz(func(t *testing.T, p, state, baggage string) {
		var off *Tracing
		s := off.Process(CarrierFrom(amqp.Table{"traceparent": p, "tracestate": []byte(state), "baggage": baggage}), Attrs{})
		c := s.Client()
		if !validTraceparent(c.Traceparent) || len(s.TraceID()) != 32 {
			t.Fatalf("%q", c.Traceparent)
		}
		r := must.Get(http.NewRequest(http.MethodPost, "http://127.0.0.1:1/", nil))(t)
		for _, v := range []string{c.Traceparent, c.Tracestate, c.Baggage} {
			r.Header.Set("X", v)
			if strings.ContainsAny(v, "\r\n\x00") || r.Write(io.Discard) != nil {
				t.Fatalf("not an HTTP field value: %q", v)
			}
		}
	})
}
