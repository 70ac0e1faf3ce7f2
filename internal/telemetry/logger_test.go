package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
)

func TestLoggerNamesItsFields(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	NewLogger(&out, "info", "json").Warn("settled", "queue", "q", "wait", 1500*time.Millisecond,
		"error", errors.New("boom"), slog.Group("g", "msg", "kept"))

	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339Nano, line["time"].(string))
	if err != nil || at.Location() != time.UTC {
		t.Errorf("time = %v, want RFC 3339 in UTC", line["time"])
	}
	delete(line, "time")
	want := `{"error":"boom","g":{"msg":"kept"},"level":"warn","msg":"settled","queue":"q","wait":"1.5s"}`
	if got, _ := json.Marshal(line); string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestLoggerKeepsTheCallersOwnFields(t *testing.T) {
	t.Parallel()
	var out apptest.Log
	NewLogger(&out, "info", "json").Info("e", "time", "yesterday", "level", "high")
	if len(out.Lines(`"time":"yesterday"`, `"level":"high"`, `"level":"info"`)) != 1 {
		t.Error(out.String())
	}
}

func TestLoggerLevels(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]int{"debug": 4, "info": 3, "warn": 2, "error": 1, "nonsense": 3} {
		var out bytes.Buffer
		l := NewLogger(&out, level, "json")
		l.Debug("a")
		l.Info("a")
		l.Warn("a")
		l.Error("a")
		if got := strings.Count(out.String(), "\n"); got != want {
			t.Errorf("%s: %d lines, want %d", level, got, want)
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

func TestLoggerText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	NewLogger(&out, "info", "text").Info("drained", "released", 3)
	if !strings.Contains(out.String(), "level=info msg=drained released=3\n") {
		t.Errorf("got %q", out.String())
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

// TestEmptyFieldsAreLeftOut: texts and errors; a number is never empty.
func TestEmptyFieldsAreLeftOut(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	var err error
	NewLogger(&b, "info", "json").Info("x", "error", err, "text", "", "n", 0)
	if text := b.String(); strings.Contains(text, "error") || strings.Contains(text, "text") || !strings.Contains(text, `"n":0`) {
		t.Error(text)
	}
}
