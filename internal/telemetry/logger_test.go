package telemetry

import (
	"bytes"
	"errors"
	"log"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	amqp "github.com/rabbitmq/amqp091-go"
)

func TestLoggerNamesItsFields(t *testing.T) {
	t.Parallel()
	var none error
	for want, fields := range map[string][]any{
		`"queue":"q","wait":"1.5s","error":"boom","g":{"msg":"kept"}}`: {
			"queue", "q", "wait", 1500 * time.Millisecond, "error", errors.New("boom"), slog.Group("g", "msg", "kept"),
		},
		`"time":"yesterday","level":"high"}`: {"time", "yesterday", "level", "high"}, // the caller's own
		`"n":0}`:                             {"error", none, "text", "", "n", 0},    // empty ones are left out, a number is never empty
	} {
		var out bytes.Buffer
		NewLogger(&out, "info", "json").Warn("settled", fields...)
		at, rest, _ := strings.Cut(strings.TrimPrefix(out.String(), `{"time":"`), `",`)
		if when, err := time.Parse(time.RFC3339Nano, at); err != nil || when.Location() != time.UTC {
			t.Errorf("time = %v, want RFC 3339 in UTC", at)
		}
		if want := `"level":"warn","msg":"settled",` + want + "\n"; rest != want {
			t.Errorf("got  %s\nwant %s", rest, want)
		}
	}
}

func TestLoggerText(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]int{"debug": 4, "info": 3, "warn": 2, "error": 1, "nonsense": 3} {
		var out bytes.Buffer
		l := NewLogger(&out, level, "text")
		l.Debug("a")
		l.Info("a")
		l.Warn("a")
		l.Error("drained", "released", 3)
		if text := out.String(); strings.Count(text, "\n") != want || !strings.HasSuffix(text, "level=error msg=drained released=3\n") {
			t.Errorf("%s: want %d lines: %q", level, want, text)
		}
	}
}

// A publisher chooses the message id: it must stay inside its field.
func TestLoggerCannotBeInjected(t *testing.T) {
	t.Parallel()
	hostile := "x\"\n{\"msg\":\"forged\"}\r\n\x1b[31m\x00\xff\u2028 level=error"
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		NewLogger(&out, "info", format).Info("settled", "message_id", hostile)
		if n := strings.Count(out.String(), "\n"); n != 1 || !strings.HasSuffix(out.String(), "\n") {
			t.Errorf("%s: %d line feeds: %q", format, n, out.String())
		}
		if strings.ContainsAny(strings.TrimSuffix(out.String(), "\n"), "\r\x1b\x00") {
			t.Errorf("%s: control bytes left: %q", format, out.String())
		}
	}
}

// TestLibrariesLogThroughUs is not parallel: the loggers of libraries belong to the process.
func TestLibrariesLogThroughUs(t *testing.T) { //nolint:paralleltest // replaces the process's loggers
	t.Cleanup(func() {
		log.SetOutput(os.Stderr)
		log.SetFlags(log.LstdFlags)
	})
	var out bytes.Buffer
	AdoptLibraries(NewLogger(&out, "debug", "json"))

	log.Printf("from log\n")
	LibraryLog(NewLogger(&out, "debug", "json"), "http").Print("from http")
	amqp.Logger.Printf("from %s", "amqp")
	h := library{NewLogger(&out, "debug", "json").Handler(), "opentelemetry"}
	o := logr.FromSlogHandler(h)
	o.V(1).Info("from otel", "config", "not logged")
	o.WithName("n").WithValues("k", "not logged").Error(errors.New("cause"), "from otel error", "config", "not logged")
	if !o.V(4).Enabled() || o.V(8).Enabled() {
		t.Error("want OpenTelemetry's info, not its debug messages")
	}
	if h.WithGroup("g") != slog.Handler(h) {
		t.Error("want the same handler")
	}
	for _, want := range []string{
		`"level":"debug","msg":"library","library":"log","text":"from log"}`,
		`"library":"http","text":"from http"}`,
		`"library":"amqp091","text":"from amqp"}`,
		`"library":"opentelemetry","text":"from otel"}`,
		`"text":"from otel error","error":"cause"}`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "not logged") {
		t.Error("the SDK's configuration was logged")
	}

	out.Reset()
	AdoptLibraries(NewLogger(&out, "info", "json"))
	log.Print("x")
	amqp.Logger.Printf("x")
	if out.Len() != 0 {
		t.Errorf("at info: %s", out.String())
	}
}

func TestThrottle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var th Throttle
		var got []int
		for range 21 {
			th.Do(func(suppressed int) { got = append(got, suppressed) })
			time.Sleep(100 * time.Millisecond)
		}
		if len(got) != 3 || got[0] != 0 || got[1] != 9 || got[2] != 9 {
			t.Errorf("%v", got)
		}
	})
}
