package outbox

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/depth"
	"sidecar/internal/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an outbox, an exchange and a queue that everything published to it reaches.
type rig struct {
	t        testing.TB
	db       *postgrestest.Database
	url      string // of the broker, for the test
	user     string // of the broker, for the relays
	exchange string
	queue    string
	options  Options
	log      *brokertest.Log      // of the relays, shown when the test fails
	metrics  *prometheus.Registry // of the relay started last
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := bareRig(t, postgrestest.New(t))
	migrate(t, r.db, r.options.Names, true)
	return r
}

// bareRig has no table.
func bareRig(t testing.TB, db *postgrestest.Database) *rig {
	t.Helper()
	r := &rig{t: t, db: db, url: brokertest.URL(t), exchange: "outbox", queue: "all", log: &brokertest.Log{}}
	r.user = r.url
	ch := brokertest.Channel(t, r.url)
	must.Do(t, ch.ExchangeDeclare(r.exchange, "topic", true, false, false, false, nil))
	r.declare(ch, r.queue, nil)
	must.Do(t, ch.QueueBind(r.queue, "#", r.exchange, false, nil))
	r.options = Options{
		Database: Database{DSN: func() (string, error) { return r.db.DSN, nil }, Name: "relay"},
		Names:    ParseTable("outbox", nil), Exchange: r.exchange, DefaultType: "auto", Batch: 100, PollInterval: 100 * time.Millisecond, MaxAttempts: 3,
		limits: limits{
			backoff: 20 * time.Millisecond, failed: 50 * time.Millisecond, nacked: 20 * time.Millisecond, unmarked: 50 * time.Millisecond,
			retain: 100 * time.Millisecond, vacuum: defaultLimits.vacuum, maxUnmarked: defaultLimits.maxUnmarked,
		},
	}
	return r
}

// declare makes a queue in the virtual host of this test.
func (r *rig) declare(ch *amqp.Channel, name string, args amqp.Table) {
	r.t.Helper()
	must.Get(ch.QueueDeclare(name, true, false, false, false, args))(r.t)
}

// start runs a relay until the test ends or stop is called.
func (r *rig) start(change ...func(*Options)) (relay *Relay, stop func()) {
	r.t.Helper()
	o := r.options
	r.metrics = prometheus.NewRegistry()
	o.Registerer = r.metrics
	o.Logger = slog.New(slog.NewJSONHandler(r.log, nil))
	o.Publisher = broker.NewPublisher(broker.NewDialer(broker.Options{
		URLs: func() ([]string, error) { return []string{r.user}, nil }, Name: r.t.Name(), Timeout: 5 * time.Second, Logger: o.Logger,
	}))
	for _, c := range change {
		c(&o)
	}
	relay = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	link, unlink := context.WithCancel(context.Background())
	var relaying, linked sync.WaitGroup
	linked.Go(func() { _ = o.Publisher.Run(link) })
	relaying.Go(func() { _ = relay.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		relaying.Wait()
		unlink()
		linked.Wait()
	})
	r.t.Cleanup(stop)
	return relay, stop
}

// settled waits until every row is sent or quarantined.
func (r *rig) settled() {
	r.t.Helper()
	defer func() {
		if r.t.Failed() {
			r.t.Logf("rows left: %v\nlog: %s", r.db.Query(`SELECT id, ordering_key, body, send_after - now(), attempts, last_error FROM outbox
				WHERE sent_at IS NULL ORDER BY id LIMIT 10`), r.log.String())
		}
	}()
	r.eventually("all rows are sent", func() bool {
		return r.db.Value(`SELECT EXISTS (SELECT FROM outbox WHERE sent_at IS NULL AND quarantined_at IS NULL)`) == "f"
	})
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	brokertest.Eventually(r.t, time.Minute, what, ok)
}

// take takes everything out of the queue that is in it by now.
func (r *rig) take() []amqp.Delivery {
	r.t.Helper()
	ch := brokertest.Channel(r.t, r.url)
	defer func() { _ = ch.Close() }()
	q := must.Get(depth.Of(ch, r.queue))(r.t)
	if q.Messages == 0 {
		return nil
	}
	must.Do(r.t, ch.Qos(q.Messages, 0, false))
	came := must.Get(ch.Consume(r.queue, "take", false, true, false, false, nil))(r.t)
	all := make([]amqp.Delivery, q.Messages)
	for i := range all {
		all[i] = <-came
	}
	must.Do(r.t, errors.Join(ch.Cancel("take", false), all[len(all)-1].Ack(true)))
	return all
}

// bodies counts what take finds, by body.
func (r *rig) bodies() map[string]int {
	r.t.Helper()
	n := map[string]int{}
	for _, d := range r.take() {
		n[string(d.Body)]++
	}
	return n
}

// insert commits rows with the bodies "NAME 1" to "NAME n".
func (r *rig) insert(name string, n int) {
	r.t.Helper()
	r.db.Exec(`INSERT INTO outbox (routing_key, body) SELECT 'k', convert_to($1 || ' ' || n, 'UTF8') FROM generate_series(1, $2::int) n`, name, n)
}

// on runs SQL on one connection.
func (r *rig) on(conn *pgconn.PgConn, sql string) {
	r.t.Helper()
	on(r.t, conn, sql)
}

func on(t testing.TB, conn *pgconn.PgConn, sql string) {
	t.Helper()
	if err := exec(t.Context(), conn, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// relayIs is a condition of pg_stat_activity for the connections of this test's relays.
const relayIs = `application_name = 'relay' AND datname = current_database()`

// cutOff ends the relays' connections to the database.
func (r *rig) cutOff() {
	r.t.Helper()
	r.db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ` + relayIs)
}

// connected starts a relay and waits until it is connected to the database.
func (r *rig) connected() *Relay {
	r.t.Helper()
	relay, _ := r.start()
	r.eventually("the relay is connected", func() bool { return relay.State().Connected })
	return relay
}

// open is the number of transactions that relays hold open.
func (r *rig) open() string {
	r.t.Helper()
	return r.db.Value(`SELECT count(*) FROM pg_stat_activity WHERE ` + relayIs + ` AND state LIKE 'idle in transaction%'`)
}

// rows counts the rows of the outbox for which a condition is true.
func (r *rig) rows(where string) string {
	r.t.Helper()
	return r.db.Value(`SELECT count(*) FROM outbox WHERE ` + where)
}

// wantBodies takes all messages: so many different ones, among them once each of these.
func (r *rig) wantBodies(different int, once ...string) {
	r.t.Helper()
	bodies := r.bodies()
	if len(bodies) != different {
		r.t.Errorf("%d different messages, want %d", len(bodies), different)
	}
	for _, body := range once {
		if bodies[body] != 1 {
			r.t.Errorf("%s came %d times", body, bodies[body])
		}
	}
}

// wantRows checks for how many rows of the outbox a condition is true.
func wantRows(t testing.TB, db *postgrestest.Database, want int, where string) {
	t.Helper()
	wantValue(t, db, strconv.Itoa(want), `SELECT count(*) FROM outbox WHERE `+where)
}

func wantValue(t testing.TB, db *postgrestest.Database, want, sql string) {
	t.Helper()
	if got := db.Value(sql); got != want {
		t.Errorf("%s: %s, want %s", sql, got, want)
	}
}

func wantError(t testing.TB, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %q", err, says)
	}
}

// errOf is the error of a call of which nothing else matters.
func errOf[T any](_ T, err error) error { return err }
