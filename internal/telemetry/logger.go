package telemetry

import (
	"cmp"
	"context"
	"io"
	"log" //nolint:depguard // to capture what libraries print with it
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.opentelemetry.io/otel"

	"sidecar/internal/terminal"
)

// NewLogger writes one line per record to w. The line starts with time (RFC 3339, UTC), level (lower case) and msg, a
// short constant text; everything that varies is an attribute. No attribute can start a line of its own or do harm to a
// terminal.
//
// level is debug, info, warn or error, format is json or text. Any other word means info and json: config refuses it.
// A line of text does not repeat the only queue that is consumed.
func NewLogger(w io.Writer, level, format string, only ...string) *slog.Logger {
	var least slog.Level
	_ = least.UnmarshalText([]byte(level)) // leaves info in place
	o := &slog.HandlerOptions{Level: least, ReplaceAttr: renameAttr}
	w = terminal.Writer{W: w} // the handlers leave some control characters as they are
	if format == "text" {
		return slog.New(newTextHandler(w, least, only))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// renameAttr gives slog's built-in fields their contracted names and forms. A duration becomes "1.5s" because slog's
// JSON would print bare nanoseconds.
func renameAttr(groups []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().String())
	}
	switch k := a.Value.Kind(); {
	case k == slog.KindString && a.Value.String() == "", k == slog.KindAny && a.Value.Any() == nil:
		return slog.Attr{} // an empty field is left out
	}
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey:
		if a.Value.Kind() == slog.KindTime {
			a.Value = slog.StringValue(a.Value.Time().UTC().Format(time.RFC3339Nano))
		}
	case slog.LevelKey:
		if l, ok := a.Value.Any().(slog.Level); ok {
			a.Value = slog.StringValue(strings.ToLower(l.String()))
		}
	}
	return a
}

// Throttle limits how often one log line is written, because its cause must not be able to fill the log: the first
// line at once, then at most one per Interval.
type Throttle struct {
	Interval time.Duration // 0: a second

	mu         sync.Mutex
	next       time.Time
	suppressed int
}

// Do calls log unless it did so within the last Interval. log takes the number of calls left out since then.
func (t *Throttle) Do(log func(suppressed int)) {
	t.mu.Lock()
	now := time.Now()
	if now.Before(t.next) {
		t.suppressed++
		t.mu.Unlock()
		return
	}
	n := t.suppressed
	t.next, t.suppressed = now.Add(cmp.Or(t.Interval, time.Second)), 0
	t.mu.Unlock()
	log(n)
}

// AdoptLibraries sends what libraries print on their own (the standard log package, the AMQP client, the
// OpenTelemetry SDK) to l as debug records with msg "library", so that nothing but l writes to stdout or stderr.
// Call it before any connection is made: the AMQP client's logger is an unguarded package variable. It may be called
// again at any time: the last logger counts.
func AdoptLibraries(l *slog.Logger) {
	log.SetFlags(0)
	log.SetPrefix("")
	log.SetOutput(LibraryLog(l, "log").Writer())
	amqpLog.SetOutput(LibraryLog(l, "amqp091").Writer())
	setAMQPLogger()
	otel.SetLogger(logr.FromSlogHandler(library{l.Handler(), "opentelemetry"}))
}

var (
	amqpLog       = log.New(io.Discard, "", 0)
	setAMQPLogger = sync.OnceFunc(func() { amqp.SetLogger(amqpLog) })
)

// LibraryLog returns a logger of the standard package for libraries that need one, such as http.Server.ErrorLog.
// name is that of the library in the record.
func LibraryLog(l *slog.Logger, name string) *log.Logger {
	return slog.NewLogLogger(library{l.Handler(), name}, slog.LevelDebug)
}

// library turns each record of a library into a debug record. Of its attributes it keeps the error alone: the
// OpenTelemetry SDK adds whole configurations, resource attributes included.
type library struct {
	slog.Handler
	name string
}

// Enabled lets through what OpenTelemetry calls info, and more serious things: it debugs once per batch, below debug.
func (h library) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelDebug && h.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle logs errors at debug like the rest: permanent failures also reach otel.Handle, and are logged there as a
// warning.
func (h library) Handle(ctx context.Context, r slog.Record) error {
	if !h.Enabled(ctx, r.Level) { // logr does not ask before it logs an error
		return nil
	}
	record := slog.NewRecord(r.Time, slog.LevelDebug, "library", 0)
	record.AddAttrs(slog.String("library", h.name), slog.String("text", r.Message))
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" { // logr's name for it
			record.AddAttrs(slog.Any("error", a.Value))
		}
		return true
	})
	return h.Handler.Handle(ctx, record)
}

// WithAttrs drops the attributes.
func (h library) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup drops the group.
func (h library) WithGroup(string) slog.Handler { return h }
