package telemetry

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.uber.org/goleak"

	"sidecar/internal/apptest"
)

func TestSamplers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "ParentBased", "parentbased_always_on": "ParentBased", "parentbased_always_off": "ParentBased{root:AlwaysOff",
		"always_on": "AlwaysOn", "always_off": "AlwaysOff", "traceidratio": "TraceIDRatioBased{0.25}",
		"parentbased_traceidratio": "ParentBased{root:TraceIDRatioBased{0.25}",
	} {
		if s := newSampler(name, 0.25); !strings.HasPrefix(s.Description(), want) {
			t.Errorf("%q: %v", name, s)
		}
	}
}

// TestShutdownWithAHungCollectorIsBounded is not parallel: it checks the goroutines of the whole process.
func TestShutdownWithAHungCollectorIsBounded(t *testing.T) { //nolint:paralleltest // counts the process's goroutines
	before := goleak.IgnoreCurrent()
	hung := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hung:
		case <-r.Context().Done():
		}
	}))
	defer func() {
		close(hung)
		srv.Close()
		// The batcher's goroutine ends too, a little later. Until then its errors would reach the next test's log.
		var left error
		for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); {
			if left = goleak.Find(before); left == nil {
				return
			}
		}
		t.Error(left)
	}()
	var out apptest.Log
	tracing := startTracing(t, TracingOptions{
		Logger: NewLogger(&out, "info", "json"), Endpoint: srv.URL,
	})
	// More than the queue holds, with no collector taking them: none of this may block.
	for range 3000 {
		s := tracing.Process(Carrier{}, Attrs{})
		s.Client()
		s.End("ack", "success")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := tracing.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestADeadCollectorLogsOncePerMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		h := exportErrors(NewLogger(&out, "info", "json"))
		for range 121 {
			h.Handle(errors.New("refused"))
			time.Sleep(time.Second)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("%d lines in two minutes: %s", len(lines), out.String())
		}
		for i, want := range []string{`"suppressed":0}`, `"suppressed":59}`, `"suppressed":59}`} {
			if !strings.Contains(lines[i], `"level":"warn","msg":"trace export failed","error":"refused",`+want) {
				t.Errorf("line %d: %s", i, lines[i])
			}
		}
	})
}

// TestTracingErrorsReachTheLog is not parallel: the error handler of OpenTelemetry belongs to the process.
func TestTracingErrorsReachTheLog(t *testing.T) { //nolint:paralleltest // replaces the process's error handler
	var out apptest.Log
	c := newCollector(t)
	c.answer = func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusUnauthorized) }
	tracing := startTracing(t, TracingOptions{
		Logger: NewLogger(&out, "info", "json"), Endpoint: c.URL,
	})
	record(tracing)
	flush(t, tracing)
	otel.Handle(errors.New("again"))
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "collector answered 401") {
		t.Errorf("log: %s", got)
	}
}
