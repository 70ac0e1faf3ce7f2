package telemetry

import (
	"io"
	"log/slog"
	"strings"
	"time"
)

// NewLogger writes one line per record to w. The line starts with time (RFC 3339, UTC), level (lower case) and msg, a
// short constant text; everything that varies is an attribute. Both formats escape control characters, so no attribute
// can start a line of its own.
//
// level is debug, info, warn or error, format is json or text. Any other word means info and json: config refuses it.
func NewLogger(w io.Writer, level, format string) *slog.Logger {
	o := &slog.HandlerOptions{Level: parseLevel(level), ReplaceAttr: renameAttr}
	if format == "text" {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

func parseLevel(s string) slog.Level {
	switch s {
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}

// renameAttr gives slog's built-in fields their contracted names and forms. A duration becomes "1.5s" because slog's
// JSON would print bare nanoseconds.
func renameAttr(groups []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().String())
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
