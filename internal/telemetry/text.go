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

// first are the fields of a record that a line of text begins with, in this order.
var first = []string{"message_id", "outcome", "reason", "status", "object", "problem", "error", "fix"}

// textHandler writes a line for people: time of day, level, message, then the fields.
type textHandler struct {
	slog.Handler // writes the fields to line

	only []string // queues that no line has to name
	w    io.Writer
	mu   *sync.Mutex
	line *bytes.Buffer
}

func newTextHandler(w io.Writer, least slog.Level, only []string) textHandler {
	h := textHandler{only: only, w: w, mu: &sync.Mutex{}, line: &bytes.Buffer{}}
	h.Handler = slog.NewTextHandler(h.line, &slog.HandlerOptions{Level: least,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			head := []string{slog.TimeKey, slog.LevelKey, slog.MessageKey, "trace_id", "generation"}
			if slices.Contains(head, a.Key) {
				return slog.Attr{}
			}
			return renameAttr(groups, a)
		}})
	return h
}

// constant reports whether every line would have the field.
func (h textHandler) constant(a slog.Attr) bool {
	return a.Key == "queue" && slices.Contains(h.only, a.Value.String())
}

// WithAttrs returns a handler that writes these fields before those of a record.
func (h textHandler) WithAttrs(fields []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(slices.DeleteFunc(slices.Clone(fields), h.constant))
	return h
}

// Handle writes one record.
func (h textHandler) Handle(ctx context.Context, r slog.Record) error {
	var fields []slog.Attr
	r.Attrs(func(a slog.Attr) bool {
		if r.Message == "started" || !h.constant(a) {
			fields = append(fields, a)
		}
		return true
	})
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
