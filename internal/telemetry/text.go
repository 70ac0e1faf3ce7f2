package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// first are the fields that a line of text begins with, in this order.
var first = []string{"message_id", "outcome", "reason", "status", "object", "problem", "error", "fix"}

// textHandler writes a line for people: time of day, level, message, then the fields.
type textHandler struct {
	slog.Handler // writes the fields to line

	w    io.Writer
	mu   *sync.Mutex
	line *bytes.Buffer
}

// newTextHandler leaves out what is of no use to people, and texts that name the only queue.
func newTextHandler(w io.Writer, least slog.Level, only []string) textHandler {
	var line bytes.Buffer
	leave := []string{slog.TimeKey, slog.LevelKey, slog.MessageKey, "trace_id", "generation"}
	replace := func(in []string, a slog.Attr) slog.Attr {
		constant := a.Key == "queue" && a.Value.Kind() == slog.KindString && slices.Contains(only, a.Value.String())
		none := a.Key == "suppressed" && a.Value.String() == "0"
		if constant || none || slices.Contains(leave, a.Key) {
			return slog.Attr{}
		}
		return renameAttr(in, a)
	}
	fields := slog.NewTextHandler(&line, &slog.HandlerOptions{Level: least, ReplaceAttr: replace})
	return textHandler{fields, w, &sync.Mutex{}, &line}
}

// WithAttrs returns a handler that writes these fields before those of a record.
func (h textHandler) WithAttrs(fields []slog.Attr) slog.Handler {
	return textHandler{h.Handler.WithAttrs(fields), h.w, h.mu, h.line}
}

// Handle writes one record.
func (h textHandler) Handle(ctx context.Context, r slog.Record) error {
	var fields []slog.Attr
	r.Attrs(func(a slog.Attr) bool { fields = append(fields, a); return true })
	place := func(a slog.Attr) uint { return uint(slices.Index(first, a.Key)) } //nolint:gosec // -1 is the last place
	slices.SortStableFunc(fields, func(a, b slog.Attr) int { return cmp.Compare(place(a), place(b)) })
	sorted := slog.NewRecord(time.Time{}, r.Level, "", 0)
	sorted.AddAttrs(fields...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line.Reset()
	_, _ = fmt.Fprintf(h.line, "%s %-5s %s  ", r.Time.Format(time.TimeOnly), strings.ToLower(r.Level.String()), r.Message)
	if err := h.Handler.Handle(ctx, sorted); err != nil {
		return err
	}
	_, err := h.w.Write(h.line.Bytes())
	return err
}
