package outbox

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestRetention: a relay deletes what was sent longer ago, and nothing else, while it publishes.
func TestRetention(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.db.Exec(`INSERT INTO outbox (routing_key, body, sent_at, quarantined_at) SELECT 'key', 'old', now() - interval '2 hours', NULL FROM generate_series(1, 2500);
		INSERT INTO outbox (routing_key, body, created_at, send_after) VALUES ('key', 'pending', now() - interval '3 hours', now() - interval '3 hours');
		INSERT INTO outbox (routing_key, body, created_at, quarantined_at) VALUES ('key', 'quarantined', now() - interval '3 hours', now() - interval '2 hours')`)
	_, stop := r.start(func(o *Options) { o.Retention = time.Second })
	r.eventually("old rows are deleted", func() bool { return r.rows(`body = 'old'`) == "0" })
	r.settled()
	if got := r.bodies(); got["pending"] != 1 || got["old"] != 0 {
		t.Errorf("published: %v", got)
	}
	if v := r.rows(`body = 'quarantined'`); v != "1" {
		t.Error("the row in quarantine is gone")
	}
	r.eventually("the row that was sent just now is deleted later", func() bool { return r.rows(`true`) == "1" })
	stop()
	if !strings.Contains(r.log.String(), `"msg":"sent rows deleted","table":"outbox","rows":2500`) {
		t.Errorf("the log: %s", r.log)
	}
}

// TestRetentionOfOne: one relay deletes at a time, a run ends with the relay, and an obstacle is reported.
func TestRetentionOfOne(t *testing.T) {
	t.Parallel()
	db, table := filled(t, 2500)
	relay := func(dsn string) *Relay {
		return New(Options{
			Database: Database{DSN: func() (string, error) { return dsn, nil }}, Names: table.Names, Retention: time.Hour,
			Logger: slog.New(slog.DiscardHandler),
		})
	}
	other := open(t, db)
	if _, err := query(t.Context(), other, retainLock, number(retainKey<<32|int64(table.OID))); err != nil {
		t.Fatal(err)
	}
	if done, err := relay(db.DSN).retainOnce(t.Context()); err != nil || done != (Pruned{}) {
		t.Errorf("while another walks: %+v, %v", done, err)
	}
	Close(other)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := relay(db.DSN).retainOnce(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	reader := db.Role("secret", `GRANT SELECT, UPDATE ON outbox TO %s`)
	if _, err := relay(reader).retainOnce(t.Context()); !isCode(err, "42501") {
		t.Errorf("without the right to delete: %v", err)
	}
	if done, err := relay(db.DSN).retainOnce(t.Context()); err != nil || done.Deleted != 2491 {
		t.Errorf("pruned: %+v, %v", done, err)
	}
	db.Exec(`DROP TABLE outbox`)
	if _, err := relay(db.DSN).retainOnce(t.Context()); !errors.Is(err, ErrNoTable) {
		t.Errorf("without a table: %v", err)
	}
	if _, err := relay("postgres://127.0.0.1:1/").retainOnce(t.Context()); err == nil || !strings.Contains(err.Error(), "connect to the database") {
		t.Errorf("without a server: %v", err)
	}
}
