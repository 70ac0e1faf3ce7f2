package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// StatusLimit is up to where rows are counted: to count more takes longer.
	StatusLimit = 1_000_000
	// statusRows is how many rows in quarantine a Status has.
	statusRows = 10
	// upkeepRows is how many rows one statement releases, or reads to delete some, so that it ends soon.
	upkeepRows = 1000
)

// Status is the state of an outbox. Of each kind at most a million rows are counted.
type Status struct {
	Table       string  `json:"table"`       // with its schema
	Pending     int     `json:"pending"`     // rows that are to be published, now or later
	Waiting     int     `json:"waiting"`     // of these: due later
	Failing     int     `json:"failing"`     // of these: failed before
	Lag         float64 `json:"lag_seconds"` // how long the row that is due for longest has been due
	Quarantined int     `json:"quarantined"` // rows that were given up
	Notify      bool    `json:"notify"`      // inserts notify the relays
	// policies may hide rows from this role: nothing here, and no relay, sees those
	Hidden bool `json:"row_security"`
	// statements that migrate would run, or why it would not; the trigger is not among them
	Missing []string      `json:"missing"`
	Rows    []Quarantined `json:"quarantined_rows"` // rows in quarantine, at most 10, by id
}

// Quarantined is a row that was given up.
type Quarantined struct {
	ID       string    `json:"id"`
	Attempts int       `json:"attempts"`
	Error    string    `json:"last_error"`
	Since    time.Time `json:"quarantined_at"`
}

// ReadStatus reads the state of an outbox. It needs the right to SELECT from the table and changes nothing. The errors
// are those of readTable and Check, and the database's.
func ReadStatus(ctx context.Context, conn *pgconn.PgConn, n Names) (*Status, error) {
	t, err := Ready(ctx, conn, n)
	if err != nil {
		return nil, rights(err)
	}
	s := &Status{Table: t.String(), Notify: t.Trigger, Missing: []string{}}
	if m, err := PlanMigration(ctx, conn, t.Names, s.Notify); err != nil {
		s.Missing = append(s.Missing, err.Error())
	} else {
		s.Missing = append(append(s.Missing, m.Inside...), m.Outside...)
	}
	err = readJSON(ctx, conn, s, t.statusSQL(), number(StatusLimit), number(statusRows), number(t.OID))
	if err != nil {
		return nil, fmt.Errorf("read the rows of table %s: %w", &t.Names, rights(err))
	}
	return s, nil
}

// statusSQL counts rows up to $1 and reads $2 of those in quarantine, as the JSON of a Status. $3 is the table's OID.
// Pending rows are read in the order of the index, so that the one that has been due longest is among the counted ones,
// and the index is read once.
func (t *Table) statusSQL() string {
	return t.expand(`SELECT json_build_object('pending', count(*), 'waiting', count(*) FILTER (WHERE due > now()),
		'failing', count(*) FILTER (WHERE attempts > 0), 'lag_seconds', ` + lag + `, 'row_security', row_security_active($3::oid),
		'quarantined', (SELECT count(*) FROM (SELECT FROM {table} WHERE ` + inQuarantine + ` LIMIT $1::int) c),
		'quarantined_rows', (SELECT COALESCE(json_agg(q), '[]') FROM (
			SELECT {id}::text AS id, COALESCE({attempts}, 0) AS attempts, COALESCE({last_error}, '') AS last_error,
				to_char(to_timestamp(extract(epoch FROM GREATEST('epoch', LEAST({quarantined_at}, '9999-01-01'))))
					AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS quarantined_at
			FROM {table} WHERE ` + inQuarantine + ` ORDER BY {id} LIMIT $2::int) q))
		FROM (SELECT {send_after} AS due, ` + t.since() + ` AS since, {attempts} AS attempts FROM {table}
			WHERE ` + unsent + ` ORDER BY {send_after}, {id} LIMIT $1::int) p`)
}

// ErrID says that no row of the table could have such an id.
var ErrID = errors.New("not an id of the table")

// Released is what a release from the quarantine has done.
type Released struct {
	Released int64    `json:"released"`
	Missing  []string `json:"missing"` // ids of which no row is in quarantine
}

// Retry releases rows with these ids, as the database writes them, from quarantine. They are due at once and have all
// their attempts again. The error is ErrID when the table cannot have such an id.
func Retry(ctx context.Context, conn *pgconn.PgConn, t *Table, ids []string) (Released, error) {
	var done Released
	err := readJSON(ctx, conn, &done, t.expand(`WITH ids AS MATERIALIZED (SELECT DISTINCT id FROM unnest($1::{idtype}[]) AS w(id)),
		released AS (UPDATE {table} SET `+release+` WHERE {id} IN (SELECT id FROM ids) AND `+inQuarantine+` RETURNING {id} AS id)
		SELECT json_build_object('released', (SELECT count(*) FROM released), 'missing', (
			SELECT COALESCE(json_agg(id::text ORDER BY id), '[]') FROM ids WHERE id NOT IN (SELECT id FROM released)))`), texts(ids))
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code[:2] == "22" { // data exception
		return done, fmt.Errorf("%w: %s", ErrID, e.Message)
	}
	if err != nil {
		return done, fmt.Errorf("release rows of table %s: %w", &t.Names, rights(err))
	}
	return done, notifyRelays(ctx, conn, t)
}

// RetryAll releases all rows that are in quarantine when it begins, a thousand in one transaction at a time. The result
// counts what it released, also when there is an error.
func RetryAll(ctx context.Context, conn *pgconn.PgConn, t *Table) (Released, error) {
	done := Released{Missing: []string{}}
	// A row that fails every time is in quarantine again soon, and must not be released for ever.
	start, err := query(ctx, conn, `SELECT clock_timestamp()`)
	if err != nil {
		return done, fmt.Errorf("ask for the time: %w", err)
	}
	sql := t.expand(`WITH chosen AS MATERIALIZED (SELECT {id} AS id FROM {table} WHERE ` + inQuarantine + ` AND {quarantined_at} <= $1::timestamptz
			ORDER BY {id} LIMIT $2::int FOR UPDATE),
		released AS (UPDATE {table} SET ` + release + ` WHERE {id} IN (SELECT id FROM chosen) RETURNING 1)
		SELECT count(*) FROM released`)
	for {
		var n int64
		if err := readJSON(ctx, conn, &n, sql, start[0][0], number(upkeepRows)); err != nil {
			return done, fmt.Errorf("release rows of table %s: %w", &t.Names, rights(err))
		}
		if n == 0 {
			return done, notifyRelays(ctx, conn, t)
		}
		done.Released += n
	}
}

// The error stays readable until the next one replaces it.
const release = `{quarantined_at} = NULL, {attempts} = 0, {send_after} = clock_timestamp()`

// notifyRelays sends NOTIFY, so that idle relays claim the released rows.
func notifyRelays(ctx context.Context, conn *pgconn.PgConn, t *Table) error {
	if _, err := query(ctx, conn, `SELECT pg_notify($1, '')`, []byte(t.Channel())); err != nil {
		return fmt.Errorf("notify the relays: %w", err)
	}
	return nil
}

const (
	// A relay deletes old rows ten times within the retention time, but not more often than limits.retain.
	retainSeldom = time.Hour
	// retainPause is between two steps of a run: relays and the app come first.
	retainPause = 20 * time.Millisecond
	// retainKey and the table's OID are the advisory lock of the one relay that deletes.
	retainKey  = 1700976
	retainLock = `SELECT to_json(pg_try_advisory_lock($1::bigint))`
)

// Pruned is what a Prune has done.
type Pruned struct {
	Scanned int64 `json:"scanned"` // rows that were read
	Deleted int64 `json:"deleted"`
}

// Prune deletes rows that were sent longer ago than age, and no others: neither pending rows nor those in quarantine.
// It goes through the table by id, a thousand rows and one transaction at a time, and leaves rows that are locked.
// after, which may be nil, is called with the progress after each, and its error ends the run. It needs the rights to
// SELECT, UPDATE and DELETE. The result counts what it deleted, also when there is an error.
func Prune(ctx context.Context, conn *pgconn.PgConn, t *Table, older time.Duration, after func(Pruned) error) (Pruned,
	error) {
	var done Pruned
	before, err := query(ctx, conn, `SELECT clock_timestamp() - $1::interval`, interval(older))
	if err != nil {
		return done, fmt.Errorf("ask for the time: %w", err)
	}
	var last []byte // all rows up to this id have been read
	for {
		var step struct {
			Pruned

			Last string
		}
		err := readJSON(ctx, conn, &step, t.pruneSQL(), last, before[0][0], number(upkeepRows))
		if err != nil {
			return done, fmt.Errorf("delete rows of table %s: %w", &t.Names, explainDenied(err, "this needs the right to "+
				"DELETE besides those of the relay: as the owner of the table, GRANT DELETE ON "+t.String()+" TO the role"))
		}
		done.Scanned += step.Scanned
		done.Deleted += step.Deleted
		if after != nil {
			if err := after(done); err != nil {
				return done, err
			}
		}
		if last = []byte(step.Last); step.Scanned < upkeepRows {
			return done, nil
		}
	}
}

// pruneSQL deletes old sent rows among the next rows by id. It returns the last id, how many it read and how many it
// deleted. Each row is checked again once it is locked: it may have been released, or changed, in between.
func (t *Table) pruneSQL() string {
	const old = `{sent_at} < $2::timestamptz AND {quarantined_at} IS NULL`
	return t.expand(`WITH next AS MATERIALIZED (SELECT {id} AS id, ` + old + ` AS old FROM {table}
			WHERE $1::{idtype} IS NULL OR {id} > $1::{idtype} ORDER BY {id} LIMIT $3::int),
		locked AS MATERIALIZED (SELECT {id} AS id FROM {table} WHERE {id} IN (SELECT id FROM next WHERE old) AND ` + old + `
			ORDER BY {id} FOR UPDATE SKIP LOCKED),
		gone AS (DELETE FROM {table} WHERE {id} IN (SELECT id FROM locked) RETURNING 1)
		SELECT json_build_object('last', (SELECT id::text FROM next ORDER BY id DESC LIMIT 1),
			'scanned', (SELECT count(*) FROM next), 'deleted', (SELECT count(*) FROM gone))`)
}

// vacuumRest is the pause after a VACUUM, in durations of that VACUUM.
const vacuumRest = 4

// vacuumMarked has the database vacuum the table, beside the batches that follow, when enough rows were marked since
// the last time: each mark writes its row anew, and only a vacuum lets later ones use the space of the old row.
// Autovacuum comes once a minute, by when a backlog has doubled the table.
func (s *session) vacuumMarked(ctx context.Context) {
	r := s.r
	if s.marked < r.o.limits.vacuum || !s.table.Vacuums || !r.vacuuming.CompareAndSwap(false, true) {
		return
	}
	s.marked = 0
	r.upkeep.Go(func() {
		defer r.vacuuming.Store(false)
		start := time.Now()
		if err := r.vacuum(ctx, s.table.quoted()); err != nil && ctx.Err() == nil {
			r.log.Warn("outbox not vacuumed", "error", err)
		}
		sleep(ctx, vacuumRest*time.Since(start))
	})
}

// vacuum waits for no other vacuum, and leaves the end of the file: to cut it off would block inserts.
func (r *Relay) vacuum(ctx context.Context, table string) error {
	conn, err := r.o.Database.Connect(ctx, nil)
	if err != nil {
		return err
	}
	defer Close(conn)
	if err := exec(ctx, conn, "SET statement_timeout = 0"); err != nil {
		return err
	}
	return exec(ctx, conn, "VACUUM (SKIP_LOCKED, TRUNCATE off) "+table)
}

// retain deletes rows that were sent longer ago than they are to be kept, now and then, until ctx ends. It works on a
// connection of its own, so that no row waits for it to be published.
func (r *Relay) retain(ctx context.Context) {
	for {
		if sleep(ctx, min(max(r.o.Retention/10, r.o.limits.retain), retainSeldom)); ctx.Err() != nil {
			return
		}
		done, err := r.retainOnce(ctx)
		if done.Deleted > 0 {
			r.log.Info("sent rows deleted", "rows", done.Deleted)
		}
		if err != nil && ctx.Err() == nil {
			r.log.Warn("sent rows not deleted", "error", err)
		}
	}
}

func (r *Relay) retainOnce(ctx context.Context) (Pruned, error) {
	conn, err := r.o.Database.Connect(ctx, nil)
	if err != nil {
		return Pruned{}, err
	}
	defer Close(conn)
	t, err := Ready(ctx, conn, r.o.Names)
	if err != nil {
		return Pruned{}, err
	}
	var alone bool // the lock ends with the connection
	if err := readJSON(ctx, conn, &alone, retainLock, number(retainKey<<32|int64(t.OID))); err != nil || !alone {
		return Pruned{}, err
	}
	return Prune(ctx, conn, t, r.o.Retention, func(Pruned) error {
		sleep(ctx, retainPause)
		return ctx.Err()
	})
}
