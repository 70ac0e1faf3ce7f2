package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Names of the prepared statements.
const (
	stmtBegin     = "begin"
	stmtCommit    = "commit"
	stmtClaim     = "claim"
	stmtClaimOn   = "claim_from_mark"
	stmtOrder     = "find_blocked"
	stmtFetch     = "fetch"
	stmtSent      = "mark_sent"
	stmtFailed    = "mark_failed"
	stmtDeferred  = "mark_deferred"
	stmtMeasure   = "measure"
	stmtEnterIdle = "enter_idle"
	stmtLeaveIdle = "leave_idle"

	// To mark rows one by one, and the savepoint of these marks and of reads.
	stmtRollback    = "rollback"
	stmtRelock      = "relock"
	stmtTimeout     = "set_timeout"
	stmtSave        = "savepoint"
	stmtConstraints = "check_constraints"
	stmtRelease     = "release_savepoint"
	stmtBack        = "rollback_to_savepoint"
)

// followLimit is the longest wait of a row for an earlier row of its key: then it is checked again, because the earlier
// row may have been deleted or moved.
const followLimit = "1 minute"

// countLimit bounds what counting the pending rows costs.
const countLimit = 100_000

// statements are all that the relay executes in a batch. Parameters and rows are texts, except bodies.
func (t *Table) statements() map[string]string {
	all := map[string]string{
		stmtBegin: `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`, stmtCommit: `COMMIT`,
		stmtClaim: t.claimSQL(false), stmtClaimOn: t.claimSQL(true), stmtFetch: t.fetchSQL(), stmtMeasure: t.statusSQL(),
		stmtEnterIdle: t.idleSQL("pg_try_advisory_lock"), stmtLeaveIdle: t.idleSQL("pg_advisory_unlock"),
		stmtSent: t.expand(`UPDATE {table} SET {sent_at} = clock_timestamp() WHERE {id} = ANY($1::{idtype}[])
			RETURNING {id}, {sent_at} IS NOT NULL, false`),
		// $4, doubling to five minutes. Attempts may be anything, and are not counted beyond the smallest type's end.
		stmtFailed: t.expand(`UPDATE {table} t SET {last_error} = f.error,
			{attempts} = CASE WHEN t.{attempts} >= 32767 THEN t.{attempts} ELSE COALESCE(t.{attempts}, 0) + 1 END,
			{send_after} = clock_timestamp() +
				LEAST($4::interval * power(2, GREATEST(0, LEAST(COALESCE(t.{attempts}, 0), 16))), interval '5 minutes'),
			{quarantined_at} = CASE WHEN COALESCE(t.{attempts}, 0) >= $3::int - 1 THEN clock_timestamp() END
			FROM unnest($1::{idtype}[], $2::text[]) AS f(id, error) WHERE t.{id} = f.id
			RETURNING t.{id}, t.{quarantined_at} IS NOT NULL OR t.{send_after} > now(), t.{quarantined_at} IS NOT NULL`),
		// Rows are due at the time given for each, or after the pause where it is ''.
		stmtDeferred: t.expand(`UPDATE {table} t SET {send_after} = COALESCE(d.until, clock_timestamp() + $3::interval)
			FROM (SELECT id, NULLIF(until, '')::timestamptz AS until FROM unnest($1::{idtype}[], $2::text[]) AS u(id, until)) d
			WHERE t.{id} = d.id RETURNING t.{id}, t.{send_after} >= LEAST(d.until, now()), false`),
		stmtRollback: `ROLLBACK`, stmtSave: `SAVEPOINT marks`, stmtRelease: `RELEASE SAVEPOINT marks`,
		stmtBack:        `ROLLBACK TO SAVEPOINT marks`,
		stmtConstraints: `SET CONSTRAINTS ALL IMMEDIATE`, stmtTimeout: `SELECT set_config('statement_timeout', $1, true)`,
		stmtRelock: t.expand(`SELECT {id} FROM {table} WHERE {id} = ANY($1::{idtype}[]) AND ` + unsent +
			` FOR NO KEY UPDATE SKIP LOCKED`),
	}
	if t.Has(colOrderingKey) {
		all[stmtOrder] = t.orderSQL()
	}
	return all
}

const (
	// unsent is what is still to be published.
	unsent       = `{sent_at} IS NULL AND {quarantined_at} IS NULL`
	inQuarantine = `{sent_at} IS NULL AND {quarantined_at} IS NOT NULL`
)

// due leaves plain what the index can do with; where send_after may be null, such rows are due.
func (t *Table) due() string {
	if t.hasLowWater() {
		return `{send_after} <= now()`
	}
	return `({send_after} IS NULL OR {send_after} <= now())`
}

// since is the time from which a row is due: where send_after may be null, the time when it was created, if known.
func (t *Table) since() string {
	if t.hasLowWater() || !t.Has(colCreatedAt) {
		return `{send_after}`
	}
	return `COALESCE({send_after}, {created_at})`
}

// hasLowWater reports whether claims may start at a low-water mark: not where send_after may be null, because such rows
// are last in the index, and are due.
func (t *Table) hasLowWater() bool { return t.Found[colSendAfter].NotNull }

// claimSQL locks rows that no other relay has locked, except keys in $2 and ids in $5. It returns the sizes of the body
// and of the other columns, estimated where the database would have to make a text to know. Of an ordering key that is
// too long only the size is returned; a row with such an id is not claimed. $3 and $4 are the send_after and id of the
// low-water mark, or null: either the query starts there, or it says which of its rows are above it.
//
// A selected expression must not have the name of a column: ORDER BY would sort by it, and not by the index.
func (t *Table) claimSQL(on bool) string {
	above, where := `(({send_after}, {id}) >= ($3::{duetype}, $4::{idtype})) IS NOT FALSE`, ``
	if on {
		above, where = `true`, ` AND ({send_after}, {id}) >= ($3::{duetype}, $4::{idtype})`
	}
	key, keySize, others := `NULL`, `0`, `$2::text[] IS NOT NULL`
	if t.Has(colOrderingKey) {
		keySize = `COALESCE(octet_length({ordering_key}::text), 0)`
		key = fmt.Sprintf(`CASE WHEN %s <= %d THEN {ordering_key} END`, keySize, maxKey)
		others = `({ordering_key} IS NULL OR {ordering_key}::text <> ALL($2::text[]))`
	}
	if !slices.Contains([]string{"smallint", "integer", "bigint", "uuid"}, t.Found[colID].Type) {
		others += fmt.Sprintf(` AND octet_length({id}::text) <= %d`, maxKey)
	}
	sizes := make([]string, len(fetched))
	for i, c := range fetched {
		sizes[i] = t.sizeSQL(c)
	}
	return t.expand(`SELECT {id}, ` + key + `, ` + keySize + `, ` + t.sizeSQL(colBody) + `, ` + strings.Join(sizes, " + ") + `, {send_after}, ` + above + `
		FROM {table} WHERE ` + unsent + ` AND ` + t.due() + ` AND ` + others + where + `
		AND {id} <> ALL($5::{idtype}[])
		ORDER BY {send_after}, {id} LIMIT $1::int FOR NO KEY UPDATE SKIP LOCKED`)
}

// sizeSQL is the size of a column's text: exact for texts and bytes, where the database stores it; for others a guess,
// which is larger for a text that is not compressed.
func (t *Table) sizeSQL(column string) string {
	switch base := t.Found[column].Base; {
	case base == "":
		return `0`
	case t.exact(column):
		return `COALESCE(octet_length({` + column + `}), 0)::bigint`
	case isJSON(base): // compressed, or with blanks and names that jsonb does not keep
		return `4 * COALESCE(pg_column_size({` + column + `}), 0)::bigint`
	}
	return `COALESCE(octet_length({` + column + `}::text), 0)::bigint`
}

// exact reports whether the database has the size of a column's text without making the text.
func (t *Table) exact(column string) bool {
	return slices.Contains([]string{"bytea", "text", "character varying", "character"}, t.Found[column].Base)
}

// orderSQL returns, for claimed rows with keys in the order of their ids, whether an unclaimed earlier row of the key
// exists, and when that one is due if later, at most followLimit from now: then the rows have to wait for it. If it is
// not due later, another relay has it. This must be a statement of its own: its snapshot is taken after the rows were
// locked, so it sees what another relay committed for the earlier rows. Rows in $3 do not block others.
func (t *Table) orderSQL() string {
	return t.expand(`WITH w AS (SELECT * FROM unnest($1::{idtype}[], $2::{keytype}[]) WITH ORDINALITY AS w(id, key, n)),
		first AS (SELECT k.key, f.id, f.until FROM (SELECT DISTINCT key FROM w) k, LATERAL (
			SELECT o.{id} AS id, o.{send_after} AS until FROM {table} o
			WHERE o.{ordering_key} = k.key AND o.{sent_at} IS NULL AND o.{quarantined_at} IS NULL
				AND o.{id} NOT IN (SELECT id FROM w) AND o.{id} <> ALL($3::{idtype}[])
			ORDER BY o.{id} LIMIT 1) f)
		SELECT w.n, COALESCE(f.id < w.id, false),
			CASE WHEN f.until > COALESCE(t.{send_after}, '-infinity') THEN LEAST(f.until, (now() + interval '` + followLimit + `')::{duetype}) END
		FROM w JOIN {table} t ON t.{id} = w.id LEFT JOIN first f ON f.key = w.key ORDER BY w.id`)
}

// lag is for how many seconds the row has been due that has been due longest. A row due at '-infinity' has no age.
const lag = `COALESCE(extract(epoch FROM now() - min(GREATEST(since, 'epoch'))
	FILTER (WHERE since <= now() AND since > '-infinity')), 0)`

// expand puts the table, its columns and their types into SQL.
func (t *Table) expand(sql string) string {
	return t.Names.expand(sql, "{idtype}", t.Found[colID].Type, "{duetype}", t.Found[colSendAfter].Type,
		"{keytype}", t.Found[colOrderingKey].Type)
}

// prepare prepares the statements, and executes those that change rows on no rows: a missing right shows before
// anything is published that could not be marked.
func (s *session) prepare(ctx context.Context) error {
	for name, sql := range s.table.statements() {
		if _, err := s.conn.Prepare(ctx, name, sql, nil); err != nil {
			return fmt.Errorf("prepare statement %q for table %s: %w", name, &s.table.Names, err)
		}
	}
	none := []byte("{}")
	err := s.execute(ctx, nil,
		call{name: stmtSent, params: [][]byte{none}},
		call{name: stmtFailed, params: [][]byte{none, none, number(1), interval(0)}},
		call{name: stmtDeferred, params: [][]byte{none, none, interval(0)}},
		call{name: stmtClaim, params: [][]byte{number(0), none, nil, nil, none}})
	if err != nil {
		return fmt.Errorf("rows of table %s could not be marked: %w", &s.table.Names, err)
	}
	return nil
}

// call is the execution of a prepared statement.
type call struct {
	name    string
	params  [][]byte
	formats []int16 // of the columns that it returns; nil: all are texts
}

// execute runs statements in one round trip, and gives the rows of all to each, which may be nil.
func (s *session) execute(ctx context.Context, each func(values [][]byte) error, calls ...call) (err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	p := s.conn.StartPipeline(ctx)
	defer func() { err = cmp.Or(err, p.Close()) }()
	for _, c := range calls {
		p.SendQueryPrepared(c.name, c.params, nil, c.formats)
	}
	if err := p.Sync(); err != nil {
		return err
	}
	for {
		results, err := p.GetResults()
		if err != nil {
			return err
		}
		r, ok := results.(*pgconn.ResultReader)
		if !ok { // the end of the pipeline
			return nil
		}
		for each != nil && r.NextRow() {
			if err := each(r.Values()); err != nil {
				return err
			}
		}
		if _, err := r.Close(); err != nil {
			return err
		}
	}
}

// bounded is the time that one statement may take, for the client: a little more than for the server.
func (s *session) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	d := &s.r.o.Database
	return context.WithTimeoutCause(ctx, d.timeout()+cmp.Or(d.margin, defaultMargin), errSlow)
}

var errSlow = errors.New("the database does not answer")

// array is the text form of an array of texts, one for each of the values.
func array[T any](values []T, text func(T) string) []byte {
	b := []byte{'{'}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		for _, c := range []byte(text(v)) {
			if c == '"' || c == '\\' {
				b = append(b, '\\')
			}
			b = append(b, c)
		}
		b = append(b, '"')
	}
	return append(b, '}')
}

func texts(values []string) []byte { return array(values, func(s string) string { return s }) }

func ids(rows []*row) []byte { return array(rows, func(x *row) string { return x.id }) }

func number[N int | int64 | uint32](n N) []byte { return strconv.AppendInt(nil, int64(n), 10) }

func interval(d time.Duration) []byte { return fmt.Appendf(nil, "%d ms", d.Milliseconds()) }
