package outbox

import (
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
)

// holdMarking makes the relay's UPDATE wait while the test has a lock, and returns what lets it go on.
func (r *rig) holdMarking() (release func()) {
	r.t.Helper()
	r.db.Exec(`CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END $$;
		CREATE TRIGGER hold BEFORE UPDATE OF sent_at ON outbox FOR EACH STATEMENT EXECUTE FUNCTION hold()`)
	c := r.db.Conn()
	r.on(c, `SELECT pg_advisory_lock(7)`)
	return func() { Close(c) }
}

// TestDatabaseDies: rows that were published when the database is killed are published again, with the same message ids
// in the same traces, and none is lost. A database that does not answer is given up after its timeout, and used again
// when it answers.
func TestDatabaseDies(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	r := bareRig(t, server.New())
	migrate(t, r.db, r.options.Names, true)
	r.connected()
	release := r.holdMarking()
	r.insert("m", 50)
	brokertest.WaitReady(t, r.url, r.queue, 50)
	server.Kill()
	server.Restart()
	release()
	_ = r.db.Fails(`SELECT 1`) // the old connection
	r.settled()
	all, ids := r.take(), map[string]string{}
	for _, d := range all {
		id := d.MessageId + fmt.Sprintf(" in trace %.36s", d.Headers["traceparent"])
		if before, found := ids[string(d.Body)]; found && before != id {
			t.Errorf("%s came as %s and as %s", d.Body, before, id)
		}
		ids[string(d.Body)] = id
	}
	if len(ids) != 50 || len(all) != 100 {
		t.Errorf("%d messages, %d different ones", len(all), len(ids))
	}
	r.options.Database.Timeout, r.options.Database.margin = time.Second, 100*time.Millisecond
	relay := r.connected()
	server.Freeze()
	r.eventually("the relay gives up", func() bool { return !relay.State().Connected && relay.State().Problem != "" })
	server.Thaw()
	r.insert("n", 50)
	r.settled()
	r.wantBodies(50)
	if !strings.Contains(r.log.String(), "outbox session over") {
		t.Error("the log says nothing of a lost session")
	}
}

// TestBrokerAway: while there is no broker no row is claimed, and those that were on their way when it went are sent.
func TestBrokerAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := brokertest.NewProxy(t, r.url)
	r.user = proxy.URL(t, r.url)
	relay := r.connected()
	proxy.Refuse()
	r.eventually("the relay has no broker", func() bool { return !relay.o.Publisher.Connected() })
	r.insert("first", 100)
	time.Sleep(300 * time.Millisecond) // in which nothing may happen
	if got := r.open(); got != "0" {
		t.Errorf("%s transactions are held open while there is no broker", got)
	}
	proxy.Restore(t)
	for range 3 { // and while it comes and goes
		r.insert("second", 100)
		time.Sleep(50 * time.Millisecond)
		proxy.Cut()
	}
	r.settled()
	if bodies := r.bodies(); len(bodies) != 200 || bodies["second 1"] < 3 {
		t.Errorf("%d different messages, %d of second 1", len(bodies), bodies["second 1"])
	}
	wantRows(t, r.db, 0, `attempts > 0`)
}

// TestAlarm: during a resource alarm of the broker rows stay, no transaction is held open, and afterwards all are sent.
// So do the rows of a relay whose first message meets the alarm, in its dry run, and its connection stays.
func TestAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	r := newRig(t)
	relay, _ := r.start()
	r.insert("sent before, and larger than those during the alarm, which need not be tried", 20)
	r.settled()
	calm := node.Alarm()
	r.insert("during", 200)
	r.eventually("the relay waits, without a transaction", func() bool { return relay.o.Publisher.Blocked() && r.open() == "0" })
	other, _ := r.start()
	r.eventually("the other relay waits, too", func() bool { return other.o.Publisher.Blocked() && r.open() == "0" })
	const failed = "outbox batch not published"
	before := strings.Count(r.log.String(), failed)
	time.Sleep(time.Second) // in which no rows may be claimed; the batches that met the alarm may end
	if n := strings.Count(r.log.String(), failed) - before; n > 2 {
		t.Errorf("rows were claimed %d times during the alarm", n)
	}
	wantRows(t, r.db, 0, `body LIKE 'during%' AND sent_at IS NOT NULL`)
	calm()
	r.settled()
	if text := r.log.String(); strings.Contains(text, "broker session over") {
		t.Errorf("the alarm has cost a connection: %s", text)
	}
	r.wantBodies(220)
	wantRows(t, r.db, 0, `attempts > 0`)
}

// TestNotUsable: with a table that cannot be used, or rights that are missing, the relay says so, publishes nothing,
// and goes on as soon as it can.
func TestNotUsable(t *testing.T) {
	t.Parallel()
	r := bareRig(t, postgrestest.New(t))
	var dsn atomic.Value
	dsn.Store(strings.Replace(r.db.DSN, r.db.Name, "no_such_database", 1))
	r.options.Database.DSN = func() (string, error) { return dsn.Load().(string), nil }
	relay, _ := r.start()
	says := func(text string) {
		t.Helper()
		r.eventually("the relay says "+text, func() bool { s := relay.State(); return !s.Connected && strings.Contains(s.Problem, text) })
	}
	says("no_such_database")
	dsn.Store(r.db.DSN) // read at the next connect
	says("no such table")
	time.Sleep(200 * time.Millisecond) // several attempts
	if n := len(r.log.Lines("no such table")); n != 1 || len(r.log.Lines("sidecar outbox migrate makes it")) != 1 {
		t.Errorf("%d lines about the missing table", n)
	}
	r.db.Exec(`CREATE TABLE outbox (id bigint, routing_key text, body bytea)`)
	says("no column sent_at")
	r.db.Exec(`ALTER TABLE outbox ADD sent_at timestamptz`)
	r.insert("m", 3)
	r.db.Exec(`UPDATE outbox SET id = 1`)
	says("unique index")
	r.db.Exec(`UPDATE outbox SET id = ascii(substr(convert_from(body, 'UTF8'), 3)); ALTER TABLE outbox ADD PRIMARY KEY (id)`)
	says("'sidecar outbox migrate' adds")
	role := r.db.Role("word", `GRANT SELECT ON outbox TO %s`)
	r.db.Exec(`ALTER TABLE outbox ADD send_after timestamptz, ADD attempts int, ADD last_error text, ADD quarantined_at timestamptz`)
	r.settled()
	dsn.Store(role)
	r.cutOff()
	says("permission denied")
	r.db.Exec(`INSERT INTO outbox (id, routing_key, body) VALUES (100, 'k', 'later')`)
	says("permission denied")
	if n := brokertest.Ready(t, r.url, r.queue); n != 3 {
		t.Errorf("%d messages, of which none could be marked", n-3)
	}
	u := must.Get(url.Parse(role))(t)
	r.db.Exec(`GRANT UPDATE (sent_at, send_after, attempts, last_error, quarantined_at) ON outbox TO "` + u.User.Username() + `"`)
	r.settled()
	r.wantBodies(4, "later")
	if strings.Contains(r.log.String(), "word@") {
		t.Error("the log has the password")
	}
}
