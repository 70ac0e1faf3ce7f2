package outbox

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
)

// wakeRig has relays that poll once in an hour, and what waits until a message with the body has come.
func wakeRig(t *testing.T, relays int) (r *rig, comes func(body string)) {
	t.Helper()
	r = newRig(t)
	r.options.PollInterval = time.Hour
	for range relays {
		r.connected()
	}
	came := must.Get(brokertest.Channel(t, r.url).Consume(r.queue, "", true, false, false, false, nil))(t)
	patience := time.NewTimer(time.Minute)
	t.Cleanup(func() { patience.Stop() })
	return r, func(body string) {
		t.Helper()
		patience.Reset(time.Minute)
		for {
			select {
			case d := <-came:
				if string(d.Body) == body {
					return
				}
			case <-patience.C:
				t.Fatalf("%s never came. Locks: %v", body, r.db.Query(`SELECT pid, mode FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::int`, idleKey))
			}
		}
	}
}

// TestNoNotificationIsLost: rows that are inserted at random moments after the last one was sent, when relays claim, take
// the lock, claim again and become idle, are all sent, although nothing polls.
func TestNoNotificationIsLost(t *testing.T) {
	t.Parallel()
	for relays, rows := range map[int]int{1: 120, 3: 80} {
		t.Run(strconv.Itoa(relays), func(t *testing.T) {
			t.Parallel()
			r, comes := wakeRig(t, relays)
			conn := r.db.Conn()
			random := rand.New(rand.NewPCG(1, uint64(relays)))
			pause := func() { time.Sleep(time.Duration(random.IntN(5000)) * time.Microsecond) }
			for n := range rows {
				body := strconv.Itoa(n)
				insert := fmt.Sprintf(`INSERT INTO outbox (routing_key, body) VALUES ('k', '%s');`, body)
				pause()
				switch n % 8 {
				case 0:
					r.on(conn, `BEGIN; SELECT 1;`+insert+insert)
					pause()
					r.on(conn, `COMMIT`)
				case 1:
					r.on(conn, `BEGIN; SAVEPOINT s; `+strings.ReplaceAll(insert, body, "back")+` ROLLBACK TO s; `+insert)
					pause()
					r.on(conn, `COMMIT`)
				case 2:
					must.Get(conn.CopyFrom(t.Context(), strings.NewReader("k\t"+body+"\n"), `COPY outbox (routing_key, body) FROM STDIN`))(t)
				case 3:
					r.on(conn, `BEGIN;`+insert+`ROLLBACK;`+insert)
				default:
					r.on(conn, insert)
				}
				comes(body)
			}
		})
	}
}

// TestLongTransaction: while a transaction with rows is open no relay can become idle, and other rows are sent; so are its
// own when it ends.
func TestLongTransaction(t *testing.T) {
	t.Parallel()
	r, comes := wakeRig(t, 1)
	long := r.db.Conn()
	r.insert("before", 1)
	comes("before 1")
	for n := range 2 {
		r.eventually("the relay is idle", func() bool { return r.idleBackends() != "" })
		// The first row takes no lock, because the relay is idle; it polls for the next one, which is not notified.
		insert := fmt.Sprintf(`INSERT INTO outbox (routing_key, body) VALUES ('k', 'long%d')`, n)
		r.on(long, `BEGIN;`+insert)
		r.insert("other"+strconv.Itoa(n), 1)
		comes(fmt.Sprintf("other%d 1", n))
		r.on(long, insert)
		r.insert("another"+strconv.Itoa(n), 1)
		comes(fmt.Sprintf("another%d 1", n))
		r.on(long, `COMMIT`)
		comes("long" + strconv.Itoa(n))
	}
}

// idleBackends are the backends of idle relays.
func (r *rig) idleBackends() string {
	return r.db.Value(`SELECT COALESCE(string_agg(pid::text, ' '), '') FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::int
		AND mode = 'ExclusiveLock' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, idleKey)
}

// TestIdleRelayDies: when the notified relay dies, another one is notified, or polls.
func TestIdleRelayDies(t *testing.T) {
	t.Parallel()
	r, comes := wakeRig(t, 2)
	for n := range 3 {
		r.eventually("a relay is idle", func() bool { return r.idleBackends() != "" })
		r.db.Exec(`SELECT pg_terminate_backend(pid::int) FROM unnest(string_to_array($1, ' ')) pid`, r.idleBackends())
		r.insert(strconv.Itoa(n), 1)
		comes(fmt.Sprintf("%d 1", n))
	}
}

// TestNotifiesIdleRelaysOnly: with the trigger every insert notifies an idle relay, and no other process; without it none.
// The trigger is removed again, and what an older version of its function did is replaced.
func TestNotifiesIdleRelaysOnly(t *testing.T) {
	t.Parallel()
	db, n := postgrestest.New(t), ParseTable("outbox", nil)
	table, _ := migrate(t, db, n, true)
	app := openAs(t, db.Role("word", `GRANT INSERT ON outbox TO %s`))
	for _, c := range []struct{ trigger, idle bool }{{true, true}, {true, false}, {false, true}} {
		migrate(t, db, n, c.trigger)
		if m := must.Get(PlanMigration(t.Context(), app, n, c.trigger))(t); !m.Done() {
			t.Errorf("%+v, a second time: %+v", c, m)
		}
		conn, heard := listen(t, db, table.Channel())
		if c.idle {
			on(t, conn, table.idleSQL("pg_try_advisory_lock"))
		}
		// An app's search_path must not lead the trigger astray.
		on(t, app, `SET search_path = pg_temp; `+strings.Replace(insertRow, "outbox", "public.outbox", 1)+`; RESET search_path`)
		db.Exec(`SELECT pg_notify($1, 'end')`, table.Channel())
		if got := heard(); got != (c.trigger && c.idle) {
			t.Errorf("%+v; notified: %v", c, got)
		}
		Close(conn)
	}
	migrate(t, db, n, true)
	replace := func(comment string) {
		db.Exec(`CREATE OR REPLACE FUNCTION outbox_notify() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN ` + comment + `
			RETURN NULL; END'`)
	}
	replace(`-- Made by: ` + notifyMark)
	conn := open(t, db)
	status, err := ReadStatus(t.Context(), conn, n)
	if err != nil || !status.Notify || len(status.Missing) != 1 || !strings.Contains(status.Missing[0], "advisory") {
		t.Errorf("%+v, %v", status, err)
	}
	if _, m := migrate(t, db, n, true); len(m.Inside) != 1 || len(m.Outside) != 0 {
		t.Errorf("%+v", m)
	}
	replace("")
	wantError(t, errOf(PlanMigration(t.Context(), conn, n, true)), "function public.outbox_notify that migrate did not make")
	if m, err := PlanMigration(t.Context(), conn, n, false); err != nil || !m.Done() {
		t.Errorf("another owner's function would go: %+v, %v", m, err)
	}
}
