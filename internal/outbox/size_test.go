package outbox

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/testkit/proxy"
)

// memory gives the relays a budget of so many bytes, and checks at the end of the test that nothing of it is held any
// more.
func (r *rig) memory(limit int64) *budget.Account {
	a := budget.New(limit).Account(budget.Outbox)
	r.options.Memory = a
	r.t.Cleanup(func() { // when the relays have stopped, which are started later
		if n := a.Held(); n != 0 {
			r.t.Errorf("%d bytes of memory are still held", n)
		}
	})
	return a
}

// TestRowsTooLargeToRead: a row with a column that cannot fit a frame, or with a body that does not fit into the
// memory, fails alone, with an error that names the column and its size, before it is read. Its neighbours are sent.
func TestRowsTooLargeToRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.memory(64 << 20)
	r.options.MaxAttempts = 2
	r.db.Exec(`ALTER TABLE outbox ALTER tracking_ids TYPE text, DROP COLUMN ordering_key CASCADE, ADD ordering_key text, ALTER message_id TYPE text`)
	// 18 MB of text that is 0.7 MB in the table.
	r.db.Exec(`INSERT INTO outbox (routing_key, body, headers) SELECT 'k', 'headers', jsonb_build_object('a', jsonb_agg(repeat('ab', 50)))
		FROM generate_series(1, 175000)`)
	wantValue(t, r.db, "t", `SELECT pg_column_size(headers) < 1000000 AND octet_length(headers::text) > 18000000 FROM outbox`)
	r.insert("neighbour", 50)
	long := strings.Repeat("x", 2<<20)
	for name, sql := range map[string]string{
		"properties":   `'{"type": "` + long + `"}'`,
		"tracking_ids": `'["` + long + `"]'`,
		"message_id":   `'` + long + `'`,
		"routing_key":  `'` + long + `'`,
		"exchange":     `'` + long + `'`,
		"ordering_key": `'` + long + `'`,
	} {
		r.db.Exec(fmt.Sprintf(`INSERT INTO outbox (routing_key, body) VALUES ('k', '%s'); UPDATE outbox SET %[1]s = %s WHERE body = '%[1]s'`, name, sql))
	}
	r.db.Exec(`INSERT INTO outbox (routing_key, body) SELECT 'k', convert_to('body' || repeat('x', 22 << 20), 'UTF8')`)
	r.start()
	r.settled()
	failed := r.db.Query(`SELECT convert_from(substr(body, 1, 12), 'UTF8'), attempts, quarantined_at IS NOT NULL, last_error FROM outbox
		WHERE convert_from(substr(body, 1, 9), 'UTF8') <> 'neighbour' ORDER BY id`)
	if len(failed) != 8 {
		t.Errorf("%d rows failed: %v", len(failed), failed)
	}
	for _, row := range failed {
		says := fmt.Sprintf("%s of %d bytes: at most", row[0], len(long))
		switch row[0] {
		case "headers":
			says = "headers of 18"
		case "properties", "tracking_ids":
			says = row[0] + " of 20971"
		case "bodyxxxxxxxx":
			says = fmt.Sprintf("a body of %d bytes", 22<<20+4)
		}
		if row[1] != "2" || row[2] != "t" || !strings.Contains(row[3], says) {
			t.Errorf("%v, want the error to hold %q", row, says)
		}
	}
	r.wantBodies(50)
}

// TestCompressedBodies: a JSON body that is stored in a hundredth of its size is fetched when its size is known, in the
// order of its key. One that does not fit into the memory fails alone.
func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	r := bareRig(t, postgrestest.New(t))
	r.db.Exec(`CREATE TABLE outbox (id bigint PRIMARY KEY, routing_key text, body jsonb, ordering_key text, sent_at timestamptz)`)
	migrate(t, r.db, r.options.Names, false)
	memory := r.memory(32 << 20)
	r.options.MaxAttempts = 1
	r.db.Exec(`INSERT INTO outbox (id, routing_key, body, ordering_key) SELECT n, n, to_jsonb(n || repeat('ab', CASE WHEN n % 3 = 0 THEN 1000000 ELSE 1 END)), n % 2 FROM generate_series(1, 30) n;
		INSERT INTO outbox (id, routing_key, body) SELECT 31, 'k', to_jsonb(repeat('ab', 8000000))`)
	wantValue(t, r.db, "t", `SELECT octet_length(body::text) / pg_column_size(body) > 80 FROM outbox WHERE id = 3`)
	r.start()
	r.settled()
	if row := r.db.Query(`SELECT sent_at, last_error FROM outbox WHERE id = 31`)[0]; row[0] != "NULL" || !strings.Contains(row[1], "a body of 16000002 bytes") {
		t.Errorf("the one that does not fit: %v", row)
	}
	last := [2]int{}
	all := r.take()
	for _, d := range all {
		n := must.Get(strconv.Atoi(d.RoutingKey))(t)
		if want := 2 * (1 + 999999*btoi(n%3 == 0)); len(d.Body) != want+len(d.RoutingKey)+2 {
			t.Errorf("the body of row %d has %d bytes", n, len(d.Body))
		}
		if n < last[n%2] {
			t.Errorf("row %d came after row %d of its key", n, last[n%2])
		}
		last[n%2] = n
	}
	if len(all) != 30 || memory.Held() != 0 {
		t.Errorf("%d messages, %d bytes held", len(all), memory.Held())
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestSmallMemory: many large rows go through a small budget, also while others hold most of it, and after a broker, a
// database or a relay that went away in the middle nothing of it is held.
func TestSmallMemory(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *rig, link *brokertest.Proxy, stop func()){
		"no broker":    func(_ *rig, link *brokertest.Proxy, _ func()) { link.Cut() },
		"no database":  func(r *rig, _ *brokertest.Proxy, _ func()) { r.cutOff() },
		"another stop": func(_ *rig, _ *brokertest.Proxy, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			link := brokertest.NewProxy(t, r.url)
			r.user = link.URL(t, r.url)
			link.Set(proxy.Shape{Rate: 8 << 20}) // so that the rows are on their way for a second
			const limit = 8 << 20
			b := budget.New(limit)
			memory, others := b.Account(budget.Outbox), b.Account(budget.Deliveries)
			r.options.Memory = memory
			others.Take(limit / 2)
			r.db.Exec(`INSERT INTO outbox (routing_key, body, ordering_key) SELECT 'k', convert_to(n || repeat('x', 300000), 'UTF8'), CASE WHEN n % 4 = 0 THEN 'key' END FROM generate_series(1, 30) n`)
			relay, stop := r.start()
			r.eventually("some rows are on their way", func() bool { return memory.Held() > 0 })
			end(r, link, stop)
			link.Set(proxy.Shape{})
			if name == "another stop" {
				if n := memory.Held(); n != 0 {
					t.Errorf("%d bytes are held after the stop", n)
				}
				relay, stop = r.start()
			}
			r.settled()
			r.wantBodies(30)
			stop()
			if n := memory.Held(); n != 0 || relay.State().Connected {
				t.Errorf("%d bytes are held in the end", n)
			}
			others.Give(limit / 2)
		})
	}
}

// TestNoMemory: a relay that gets no memory says so, holds no transaction meanwhile for longer than a round, and goes
// on when there is some.
func TestNoMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.Database.Timeout = 2 * time.Second
	b := budget.New(8 << 20)
	r.options.Memory = b.Account(budget.Outbox)
	others := []*budget.Account{b.Account(budget.Deliveries), b.Account(budget.Publish)}
	for _, a := range others {
		a.Take(4 << 20)
	}
	r.insert("m", 3)
	r.start()
	r.eventually("the log says it", func() bool {
		return strings.Contains(r.log.String(), "no memory is free (SIDECAR_MEMORY): 3 rows need")
	})
	r.eventually("no transaction is open", func() bool { return r.open() == "0" })
	wantRows(t, r.db, 0, `attempts > 0 OR sent_at IS NOT NULL`)
	others[0].Give(4 << 20)
	r.settled()
	others[1].Give(4 << 20)
	if n := r.options.Memory.Held(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}

// TestRowThatCannotBeRead: where the text of a column cannot be made, because it would be too long for the database or
// the data is damaged, the row fails alone; its neighbours are sent, in the order of their keys. While the row waits for
// its next attempt, no later row of its key is sent, also when an earlier one was on its way when the row failed.
func TestRowThatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := bareRig(t, postgrestest.New(t))
	r.db.Exec(`CREATE TYPE odd AS (n int);
		CREATE FUNCTION odd_text(o odd) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
			IF o.n % 10 = 3 AND current_query() LIKE '%concat_ws%' THEN RAISE EXCEPTION 'damaged' USING ERRCODE = 'XX001'; END IF;
			RETURN 'm' || o.n; END $$;
		CREATE CAST (odd AS text) WITH FUNCTION odd_text(odd);
		CREATE TABLE outbox (id bigint PRIMARY KEY, routing_key text, body bytea, message_id odd, ordering_key text, sent_at timestamptz)`)
	migrate(t, r.db, r.options.Names, false)
	memory := r.memory(32 << 20)
	r.options.MaxAttempts = 2
	r.db.Exec(`INSERT INTO outbox SELECT n, n, 'x', ROW(n)::odd, CASE WHEN n > 20 THEN n % 2 WHEN n < 10 THEN 7 END FROM generate_series(1, 30) n`)
	r.start()
	r.settled()
	if rows := r.db.Query(`SELECT id, last_error FROM outbox WHERE quarantined_at IS NOT NULL ORDER BY id`); len(rows) != 3 || rows[0][0] != "3" ||
		rows[2][0] != "23" || !strings.Contains(rows[1][1], "read the row: ERROR: damaged (SQLSTATE XX001)") {
		t.Errorf("%v", rows)
	}
	if n := r.db.Value(`SELECT count(*) FROM outbox bad, outbox later WHERE bad.quarantined_at IS NOT NULL AND later.ordering_key = bad.ordering_key
		AND later.id > bad.id AND later.sent_at <= bad.quarantined_at`); n != "0" {
		t.Errorf("%s rows were sent before the row of their key that had failed was given up", n)
	}
	all := r.take()
	for _, d := range all {
		if d.MessageId != "m"+d.RoutingKey {
			t.Errorf("row %s has the message id %s", d.RoutingKey, d.MessageId)
		}
	}
	if len(all) != 27 || memory.Held() != 0 {
		t.Errorf("%d messages, %d bytes held", len(all), memory.Held())
	}
}

// TestLongIDs: a row whose id is too long to be held for a batch of rows is not claimed, and stops no other row. A row that
// is larger each time that it is read fails, instead of being read for ever.
func TestLongIDs(t *testing.T) {
	t.Parallel()
	r := bareRig(t, postgrestest.New(t))
	r.db.Exec(`CREATE SEQUENCE length;
		CREATE TYPE odd AS (n int);
		CREATE FUNCTION odd_text(odd) RETURNS text LANGUAGE sql AS $$ SELECT CASE WHEN $1 IS NULL THEN 'm' ELSE repeat('m', nextval('length')::int) END $$;
		CREATE CAST (odd AS text) WITH FUNCTION odd_text(odd);
		CREATE TABLE outbox (id text PRIMARY KEY, message_id odd, routing_key text, body bytea, sent_at timestamptz)`)
	migrate(t, r.db, r.options.Names, false)
	r.options.MaxAttempts = 1
	r.db.Exec(`INSERT INTO outbox SELECT repeat('x', n), NULL, 'k', n::text::bytea FROM unnest(ARRAY[4097, 50000, 4096, 1]) n;
		INSERT INTO outbox VALUES ('grows', ROW(1)::odd, 'k', 'x')`)
	r.start()
	r.eventually("the others are sent", func() bool { return r.rows(`sent_at IS NOT NULL OR quarantined_at IS NOT NULL`) == "3" })
	r.wantBodies(2, "4096", "1")
	if got := r.db.Value(`SELECT last_error FROM outbox WHERE id = 'grows'`); !strings.Contains(got, "larger each time that it is read, last 1 0 1 0 0 3 0 bytes") {
		t.Error(got)
	}
}

// TestCostOfABody: a row's bytes are in memory three times at most while it is fetched. The buffer of the connection is
// a power of two, so a body that is a little larger than one costs most.
func TestCostOfABody(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	r := newRig(t)
	const size = 8<<20 + 1
	r.db.Exec(`INSERT INTO outbox (routing_key, body) SELECT 'k', convert_to(repeat('x', $1), 'UTF8')`, size)
	conn := r.db.Conn()
	s := &session{r: New(r.options), conn: conn, table: must.Get(readTable(t.Context(), conn, r.options.Names))(t)}
	must.Do(t, s.prepare(t.Context()))
	r.on(conn, `BEGIN`)
	rows := []*row{{id: "1", size: size, others: 100}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f := &publishing{s: s}
	must.Do(t, s.readRows(t.Context(), rows, func(v [][]byte) error { return f.fill(rows[0], v[1:]) }))
	runtime.ReadMemStats(&after)
	const statement = 64 << 10 // what any statement allocates
	if took := after.TotalAlloc - before.TotalAlloc; len(rows[0].body) != size || took > uint64(cost(size, 100))+statement || took < 2*size {
		t.Errorf("a body of %d bytes took %d, %.2f times its size", len(rows[0].body), took, float64(took)/size)
	}
}
