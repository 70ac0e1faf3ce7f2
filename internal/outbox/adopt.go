package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// want is what a column of an existing table has to be.
type want struct {
	types    []string // as format_type says them, without a length; "*" is any, "string" text of any kind, enums included
	writable bool     // the relay writes to it
	null     bool     // it is null before
	unbound  bool     // a text of any length has to fit
}

// adopted is what columns of an existing table may be. What is not here may be of any type.
var adopted = map[string]want{
	colExchange:      {types: []string{"string"}},
	colRoutingKey:    {types: []string{"string"}},
	colHeaders:       {types: jsonTypes},
	colProperties:    {types: jsonTypes},
	colTrackingIDs:   {types: jsonTypes},
	colCreatedAt:     {types: timeTypes},
	colSendAfter:     {types: timeTypes, writable: true},
	colSentAt:        {types: timeTypes, writable: true, null: true},
	colAttempts:      {types: []string{"integer", "bigint"}, writable: true},
	colLastError:     {types: []string{"text", "character varying"}, writable: true, null: true, unbound: true},
	colQuarantinedAt: {types: timeTypes, writable: true, null: true},
}

var (
	jsonTypes = []string{"jsonb", "json", "text"}
	timeTypes = []string{"timestamp with time zone", "timestamp without time zone"}
)

// checkAdopted says why an existing table that has all the columns cannot be an outbox: ErrNotOutbox. kind is its
// relkind.
func checkAdopted(ctx context.Context, conn *pgconn.PgConn, t *Table) (kind string, err error) {
	const look = `SELECT c.relkind, c.relpersistence FROM pg_class c WHERE c.oid = $1::oid`
	rows, err := query(ctx, conn, look, oidParam(t.OID))
	if err != nil || len(rows) == 0 {
		return "", fmt.Errorf("read table %s: %w", &t.Names, errors.Join(err, ErrNoTable))
	}
	if string(rows[0][1]) != "p" {
		return "", fmt.Errorf("table %s is %w: it is not logged, so a crash of the server would empty it (ALTER TABLE … "+
			"SET LOGGED)", &t.Names, ErrNotOutbox)
	}
	const types = `SELECT a.attname, format_type(y.oid, NULL), y.typcategory, a.attnotnull, a.atttypmod, a.attgenerated FROM pg_attribute a
		JOIN pg_type d ON d.oid = a.atttypid JOIN pg_type y ON y.oid = COALESCE(NULLIF(d.typbasetype, 0), d.oid)
		WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped`
	columns, err := query(ctx, conn, types, oidParam(t.OID))
	if err != nil {
		return "", fmt.Errorf("read table %s: %w", &t.Names, err)
	}
	for _, row := range columns {
		i := slices.IndexFunc(allColumns, func(c string) bool { return t.Column(c) == string(row[0]) })
		if i < 0 {
			continue
		}
		w, found := adopted[allColumns[i]]
		if !found {
			continue
		}
		if wrong := w.wrong(string(row[1]), string(row[2]), string(row[3]) == "t", string(row[4]) != "-1",
			string(row[5]) != ""); wrong != "" {
			return "", fmt.Errorf("table %s is %w: column %s %s", &t.Names, ErrNotOutbox, row[0], wrong)
		}
	}
	return string(rows[0][0]), nil
}

// wrong says what is wrong with a column, "" if nothing is.
func (w *want) wrong(kind, category string, notNull, bounded, generated bool) string {
	text := w.types[0] == "string"
	// char(n) comes with blanks at its end.
	if fits := slices.Contains(w.types, kind) || text && (category == "S" || category == "E") &&
		kind != "character"; !fits {
		names := strings.Join(w.types, " or ")
		if text {
			names = "text, character varying or an enum"
		}
		return "is " + kind + " and has to be " + names
	}
	switch {
	case w.writable && generated:
		return "is generated, and the relay has to write to it"
	case w.null && notNull:
		return "is NOT NULL and has to be null until the relay writes to it"
	case w.unbound && bounded:
		return "has a length, and errors may be longer"
	}
	return ""
}

// rights explains an error that says that the role may not.
func rights(err error) error {
	if denied(err) {
		return fmt.Errorf("%w; do it as the owner of the table, e.g. with the SQL of 'sidecar outbox migrate --print'", err)
	}
	return err
}

func denied(err error) bool {
	const insufficient = "42501"
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == insufficient
}
