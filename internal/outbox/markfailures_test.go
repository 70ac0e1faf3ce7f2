package outbox

import (
	"strings"
	"testing"
	"time"
)

// keep is SQL of a trigger function that does so to the row of the body "bad".
func keep(body string) string {
	return `CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.body = 'bad' THEN ` + body + ` END IF; RETURN NEW; END $$;`
}

// TestOneRowCannotBeMarked: a row of which the database does not let the relay mark that it was published comes again,
// less and less often, and its neighbours once; and it is marked as soon as it can be.
func TestOneRowCannotBeMarked(t *testing.T) {
	t.Parallel()
	const before, drop = `CREATE TRIGGER keep BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION keep()`, `DROP FUNCTION keep CASCADE`
	for name, c := range map[string]struct{ make, drop, says string }{
		"check": {`ALTER TABLE outbox ADD CONSTRAINT keep CHECK (body <> 'bad' OR sent_at IS NULL)`, `ALTER TABLE outbox DROP CONSTRAINT keep`, `violates check constraint "keep"`},
		"old":   {keep(`RETURN OLD;`) + before, drop, "the UPDATE left it as it was"},
		"deferred": {
			keep(`RAISE 'not at the commit';`) + `CREATE CONSTRAINT TRIGGER keep AFTER UPDATE ON outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION keep()`,
			drop, "not at the commit",
		},
		"slow": {keep(`PERFORM pg_sleep(60);`) + before, drop, "statement timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.options.Database.Timeout = 4 * time.Second
			neighbours := 30
			if name == "slow" { // each has a sixteenth of the time, beside processes that compute too, and all of them the whole
				r.options.Database.Timeout, neighbours = 12*time.Second, 5
			}
			r.db.Exec(c.make)
			r.insert("first", neighbours)
			r.db.Exec(`INSERT INTO outbox (routing_key, body) VALUES ('k', 'bad')`)
			r.insert("second", neighbours)
			relay, _ := r.start()
			r.eventually("the neighbours are sent", func() bool { return r.rows(`sent_at IS NULL`) == "1" })
			r.eventually("it was tried again", func() bool { return r.read()["unmarked"] >= 2 || name == "slow" })
			id := r.db.Value(`SELECT id FROM outbox WHERE body = 'bad'`)
			r.eventually("the relay says which", func() bool {
				s := relay.State()
				return s.Connected && strings.Contains(s.Problem, "1 rows cannot be marked, row "+id+": ") && strings.Contains(s.Problem, c.says)
			})
			if log := r.log.String(); !strings.Contains(log, `"msg":"outbox mark failed"`) || !strings.Contains(log, `"id":"`+id+`","result":"`) || strings.Contains(log, "session over") {
				t.Errorf("the log:\n%s", log)
			}
			r.db.Exec(c.drop)
			r.settled()
			r.eventually("nothing is wrong", func() bool { return relay.State().Problem == "" })
			all, bodies, came := r.read(), r.bodies(), 0
			for _, n := range bodies {
				came += n
			}
			if bad := bodies["bad"]; float64(bad) != all["unmarked"]+1 || all["sent"] != float64(len(bodies)) || len(bodies) != 2*neighbours+1 || came != 2*neighbours+bad {
				t.Errorf("%v, and the messages %v", all, bodies)
			}
		})
	}
}

// TestFailureCannotBeMarked: a row that fails and cannot be marked as failed holds up no other, and is published nowhere.
// Nor do rows that wait for an earlier one of their key, and cannot be put off.
func TestFailureCannotBeMarked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.Batch = 10
	r.db.Exec(`ALTER TABLE outbox ADD CHECK (attempts = 0), ADD CHECK (body <> 'waits' OR send_after <= created_at);
		INSERT INTO outbox (routing_key, body, exchange, ordering_key) VALUES ('k', 'bad', 'no such exchange', 'a');
		INSERT INTO outbox (routing_key, body, ordering_key) VALUES ('k', 'behind it', 'a');
		INSERT INTO outbox (routing_key, body, ordering_key, send_after) VALUES ('k', 'later', 'b', now() + interval '1 hour');
		INSERT INTO outbox (routing_key, body, ordering_key) SELECT 'k', 'waits', 'b' FROM generate_series(1, 20)`)
	r.start()
	r.eventually("they were tried again", func() bool { return r.read()["unmarked"] >= 42 })
	r.insert("m", 30)
	r.eventually("others are sent, and counted", func() bool { return r.read()["sent"] == 30 })
	if all := r.read(); all["failed"] != 0 || all["quarantined"] != 0 {
		t.Errorf("%v", all)
	}
	if bodies := r.bodies(); len(bodies) != 30 || r.rows(`sent_at IS NOT NULL`) != "30" {
		t.Errorf("%v", bodies)
	}
}

// TestOrderBehindUnmarked: rows of a key do not wait for one that was published and cannot be marked.
func TestOrderBehindUnmarked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.Batch = 5
	r.db.Exec(keep(`RAISE 'not this one';`) + `CREATE TRIGGER keep BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION keep();
		INSERT INTO outbox (routing_key, body, ordering_key) VALUES ('k', 'bad', '1')`)
	r.keyed(1, 60)
	r.start()
	r.eventually("the others are sent", func() bool { return r.rows(`sent_at IS NULL`) == "1" })
	first := string(r.take()[0].Body)
	if first != "bad" {
		t.Errorf("%s came first", first)
	}
}

// TestTooManyUnmarked: when no row can be marked, the relay stops taking others, and goes on when they can be.
func TestTooManyUnmarked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.options.Batch, r.options.limits.maxUnmarked, r.options.limits.unmarked = 20, 20, 200*time.Millisecond
	r.db.Exec(`CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
		CREATE TRIGGER keep BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION keep()`)
	r.insert("m", 200)
	relay, _ := r.start()
	r.eventually("rows are published again and again", func() bool { return r.read()["unmarked"] >= 80 })
	r.eventually("the relay says so", func() bool { return strings.Contains(relay.State().Problem, "no more are claimed: ") })
	if !strings.Contains(r.log.String(), "more outbox marks failed") {
		t.Error("the log does not count them")
	}
	if n := len(r.bodies()); n > 3*20 {
		t.Errorf("%d different rows were published", n)
	}
	r.db.Exec(`DROP TRIGGER keep ON outbox`)
	r.settled()
	r.eventually("nothing is wrong", func() bool { return relay.State().Problem == "" })
}

// TestUnmarkedPauses: pauses double up to five minutes, and rows that do not come again are forgotten. A row that was
// published counts as published also when it is tried again: rows behind it need not wait.
func TestUnmarkedPauses(t *testing.T) {
	t.Parallel()
	u, now := markFailures{}, time.Now()
	x := &row{id: "1", result: sent, markErr: errKept}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		u.note([]*row{x}, now, defaultLimits.unmarked)
		x.result = nacked
		if excluded, sent := u.excluded(now.Add(want*time.Second - 1)); len(excluded) != 1 || len(sent) != 1 {
			t.Errorf("%d: it may be claimed too soon", i)
		}
		now = now.Add(want * time.Second)
		if excluded, sent := u.excluded(now); len(excluded) != 0 || len(sent) != 1 {
			t.Errorf("%d: it is held longer", i)
		}
	}
	if u.forget(now.Add(unmarkedMemory)); len(u) != 1 {
		t.Error("forgotten too soon")
	}
	if u.forget(now.Add(unmarkedMemory + 1)); len(u) != 0 || u.problem(1) != "" {
		t.Errorf("remembered: %v", u)
	}
}
