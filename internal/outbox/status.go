package outbox

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// StatusLimit is up to where rows are counted: more take as long as they are many.
	StatusLimit = 1_000_000
	// statusRows is how many rows in quarantine a Status has.
	statusRows = 10
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
// are those of Look and Check, and the database's.
func ReadStatus(ctx context.Context, conn *pgconn.PgConn, n Names) (*Status, error) {
	t, err := Ready(ctx, conn, n)
	if err != nil {
		return nil, rights(err)
	}
	x, err := findAround(ctx, conn, t)
	if err != nil {
		return nil, err
	}
	s := &Status{Table: t.String(), Notify: x.Trigger, Missing: []string{}, Rows: []Quarantined{}}
	rows, err := query(ctx, conn, `SELECT row_security_active($1::oid)`, strconv.AppendUint(nil, uint64(t.OID), 10))
	if err != nil {
		return nil, fmt.Errorf("read the policies of table %s: %w", &t.Names, err)
	}
	s.Hidden = string(rows[0][0]) == "t"
	if m, err := PlanMigration(ctx, conn, t.Names, s.Notify); err != nil {
		s.Missing = append(s.Missing, err.Error())
	} else {
		s.Missing = append(append(s.Missing, m.Inside...), m.Outside...)
	}
	if err := s.count(ctx, conn, t); err != nil {
		return nil, fmt.Errorf("count the rows of table %s: %w", &t.Names, rights(err))
	}
	if err := s.list(ctx, conn, t); err != nil {
		return nil, fmt.Errorf("read the rows of table %s: %w", &t.Names, rights(err))
	}
	return s, nil
}

func (s *Status) count(ctx context.Context, conn *pgconn.PgConn, t *Table) error {
	rows, err := query(ctx, conn, t.expand(`SELECT p.pending, p.waiting, p.failing, q.quarantined,
		COALESCE(extract(epoch FROM now() - p.first), 0)
		FROM (SELECT count(*) AS pending, count(*) FILTER (WHERE due > now()) AS waiting,
			count(*) FILTER (WHERE attempts > 0) AS failing,
				min(GREATEST(since, 'epoch')) FILTER (WHERE since <= now() AND since > '-infinity') AS first
			FROM (SELECT {send_after} AS due, `+t.since()+` AS since, {attempts} AS attempts FROM {table}
				WHERE {sent_at} IS NULL AND {quarantined_at} IS NULL ORDER BY {send_after}, {id} LIMIT $1::int) c) p,
		(SELECT count(*) AS quarantined FROM (SELECT FROM {table} WHERE {sent_at} IS NULL AND {quarantined_at} IS NOT NULL LIMIT $1::int) c) q`),
		strconv.AppendInt(nil, StatusLimit, 10))
	if err != nil {
		return err
	}
	for i, n := range []*int{&s.Pending, &s.Waiting, &s.Failing, &s.Quarantined} {
		if *n, err = strconv.Atoi(string(rows[0][i])); err != nil {
			return err
		}
	}
	s.Lag, err = strconv.ParseFloat(string(rows[0][4]), 64)
	return err
}

func (s *Status) list(ctx context.Context, conn *pgconn.PgConn, t *Table) error {
	rows, err := query(ctx, conn, t.expand(`SELECT {id}, COALESCE({attempts}, 0), COALESCE({last_error}, ''),
		(extract(epoch FROM GREATEST('epoch', LEAST({quarantined_at}, '9999-01-01'))) * 1000)::bigint FROM {table}
		WHERE {sent_at} IS NULL AND {quarantined_at} IS NOT NULL ORDER BY {id} LIMIT $1::int`), strconv.AppendInt(nil, statusRows, 10))
	if err != nil {
		return err
	}
	for _, row := range rows {
		attempts, err := strconv.Atoi(string(row[1]))
		if err != nil {
			return err
		}
		since, err := strconv.ParseInt(string(row[3]), 10, 64)
		if err != nil {
			return err
		}
		s.Rows = append(s.Rows, Quarantined{ID: string(row[0]), Attempts: attempts, Error: string(row[2]),
			Since: time.UnixMilli(since).UTC()})
	}
	return nil
}
