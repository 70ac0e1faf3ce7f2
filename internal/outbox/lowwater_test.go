package outbox

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
)

// TestFullScansComeAgain: a scan from the front is due when ten times as long has passed as the last one took, at once
// without a low-water mark.
func TestFullScansComeAgain(t *testing.T) {
	t.Parallel()
	var f lowWater
	now := time.Now()
	f.fullScanDone(now, now.Add(time.Hour))
	if !f.fullScanDue(now) {
		t.Error("without a low-water mark a claim does not start at the front")
	}
	f = lowWater{sendAfter: "2026-01-01 00:00:00+00", id: "1"}
	ended := now.Add(501 * time.Millisecond)
	f.fullScanDone(now, ended)
	if f.fullScanDue(ended.Add(5*time.Second-1)) || !f.fullScanDue(ended.Add(5*time.Second)) {
		t.Errorf("half a second: due after %v", f.due.Sub(ended))
	}
	if f.fullScanDone(now, now.Add(time.Millisecond)); !f.fullScanDue(now.Add(time.Millisecond)) {
		t.Error("a cheap scan is not due at once")
	}
}

// bench is a session that claims and marks, and whose rows the test says to be published.
func bench(t *testing.T, r *rig) *session {
	t.Helper()
	relay := New(r.options)
	s := &session{r: relay, stop: t.Context(), suspects: map[string]time.Time{}, heldKeys: map[string]time.Time{}}
	var err error
	if s.conn, err = r.options.Database.Connect(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Close(s.conn) })
	must.Do(t, s.open(t.Context()))
	return s
}

// claimAndMark claims rows and marks them as sent, but for the routing keys in left. It returns the routing keys, and
// whether the claim started at the front.
func (r *rig) claimAndMark(s *session, left ...string) (keys string, front bool) {
	r.t.Helper()
	b := &batch{}
	must.Do(r.t, s.claim(r.t.Context(), b))
	var all []string
	for i := range b.rows {
		x := &b.rows[i]
		key := r.db.Value(`SELECT routing_key FROM outbox WHERE id::text = $1`, x.id)
		all = append(all, key)
		x.result = sent
		for _, l := range left {
			if key == l {
				x.result = unknown
			}
		}
	}
	must.Do(r.t, s.mark(r.t.Context(), b))
	if s.table.hasLowWater() {
		s.lowWater.advance(b)
	}
	return strings.Join(all, " "), b.front
}

// TestLowWater: claims start where the last one ended, or at a row that was left; rows below are found by a scan from the
// front, whatever the type of the id. Where send_after may be null each claim starts at the front.
func TestLowWater(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ id, due, begin string }{
		{"bigint", "timestamptz NOT NULL", ""},
		{"text", "timestamp NOT NULL", `it's "`},
		{"int", "timestamptz", ""},
	} {
		t.Run(test.id, func(t *testing.T) {
			t.Parallel()
			r := &rig{t: t, db: postgrestest.New(t)}
			r.options = Options{Database: Database{DSN: func() (string, error) { return r.db.DSN, nil }}, Names: ParseTable("outbox", nil), Batch: 3,
				MaxAttempts: 3, Registerer: prometheus.NewRegistry()}
			r.db.Exec(fmt.Sprintf(`CREATE TABLE outbox (id %s PRIMARY KEY, routing_key text, body text, sent_at timestamptz, send_after %s)`, test.id, test.due))
			migrate(t, r.db, r.options.Names, false)
			insert := func(n int, due string) {
				r.db.Exec(`INSERT INTO outbox (id, routing_key, body, send_after) VALUES (($1)::`+test.id+`, $2, '', ($3)::timestamptz)`,
					fmt.Sprintf("%s%d", test.begin, n), n, due)
			}
			for n := 1; n <= 8; n++ {
				insert(n, fmt.Sprintf("2026-01-01 00:00:0%d.123456", n/4*4)) // ties are distinguished by the id
			}
			s := bench(t, r)
			expect := func(want string, wantFront bool, left ...string) {
				t.Helper()
				if got, front := r.claimAndMark(s, left...); got != want || front != wantFront && s.table.hasLowWater() {
					t.Errorf("rows %s, from the front: %v; want %s, %v (mark %+v)", got, front, want, wantFront, s.lowWater)
				}
				s.lowWater.due = time.Now().Add(time.Hour)
			}
			expect("1 2 3", true)
			if !s.table.hasLowWater() {
				insert(0, "2026-01-01")
				r.db.Exec(`INSERT INTO outbox (id, routing_key, body, send_after) VALUES (9, '9', '', NULL)`)
				expect("0 4 5", true)
				expect("6 7 8", true)
				expect("9", true)
				return
			}
			insert(0, "2026-01-01") // committed late: below
			expect("4 5 6", false, "5")
			expect("5 7 8", false)
			expect("", false)
			insert(9, "2026-01-02")
			expect("9", false)
			s.lowWater.due = time.Time{}
			expect("0", true)
			if at := s.lowWater.sendAfter; !strings.HasPrefix(at, "2026-01-02") {
				t.Errorf("a full scan lowered the low-water mark to %s", at)
			}
			r.usesIndex(s)
		})
	}
}

// usesIndex fails the test unless a claim above the low-water mark starts there in the index, with a plan for these values and
// with one for any.
func (r *rig) usesIndex(s *session) {
	r.t.Helper()
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		r.on(s.conn, "SET plan_cache_mode = "+mode)
		explain := fmt.Sprintf(`EXPLAIN EXECUTE %s(1, '{}', '%s', '%s', '{}')`, stmtClaimOn, s.lowWater.sendAfter, strings.ReplaceAll(s.lowWater.id, "'", "''"))
		rows := must.Get(query(r.t.Context(), s.conn, explain))(r.t)
		var plan strings.Builder
		for _, row := range rows {
			plan.Write(append(row[0], '\n'))
		}
		if p := plan.String(); !strings.Contains(p, "Index Scan using outbox_pending") || !strings.Contains(p, "Index Cond: (") ||
			!strings.Contains(p[strings.Index(p, "Index Cond: "):], "ROW(send_after, ") || strings.Contains(p, "Sort") {
			r.t.Errorf("%s: the plan is\n%s", mode, p)
		}
	}
}

// TestLowWaterIsNotACursor: while nothing can be cleaned up, rows that are committed late, with lower ids and times than
// thousands that were sent, are sent as well as those at the end.
func TestLowWaterIsNotACursor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.Batch = 200
	old, late := r.db.Conn(), r.db.Conn()
	r.on(old, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox`)
	r.on(late, `BEGIN; INSERT INTO outbox (routing_key, body) VALUES ('k', 'late')`)
	r.connected()
	r.insert("m", 1500)
	r.settled()
	r.insert("end", 1)
	r.settled()
	r.on(late, `COMMIT`)
	r.settled()
	r.wantBodies(1502, "late", "end 1")
}

// TestIdleRelayScansInTime: the next full scan does not wait for the end of a poll interval.
func TestIdleRelayScansInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.PollInterval = time.Hour
	s := bench(t, r)
	s.idle = true
	s.lowWater = lowWater{sendAfter: "2126-01-01 00:00:00+00", id: "1", due: time.Now().Add(200 * time.Millisecond)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.Do(t, s.listen(ctx, t.Context(), &batch{}))
	if ctx.Err() != nil {
		t.Error("it waits for the whole poll interval")
	}
}

// TestPausesOfAFailingRowGrow: each failure doubles them.
func TestPausesOfAFailingRowGrow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := bench(t, r)
	r.db.Exec(`INSERT INTO outbox (routing_key, body) VALUES ('k', '')`)
	for _, want := range []string{"10", "20", "40"} {
		x := []*row{{id: r.db.Query(`SELECT id::text FROM outbox`)[0][0]}}
		must.Do(t, s.execute(t.Context(), nil, call{name: stmtFailed, params: [][]byte{ids(x), texts([]string{"e"}), number(1000), interval(10 * time.Second)}}))
		got := r.db.Query(`SELECT round(extract(epoch FROM send_after - clock_timestamp()) / 10)::int * 10 || '' FROM outbox`)[0][0]
		if got != want {
			t.Errorf("a pause of %s s, want %s", got, want)
		}
	}
}
