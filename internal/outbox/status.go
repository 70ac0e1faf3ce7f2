package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// StatusLimit is up to where rows are counted: to count more takes longer.
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
