package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// minVersion is the oldest server that makes uuids by itself, as server_version_num says it.
const minVersion = 130000

// Migration is what a database lacks for its outbox.
type Migration struct {
	Table  Names    // with its schema
	Create bool     // the table does not exist yet
	Inside []string // statements for one transaction
	// Statements that cannot be in one: they build an index while the app goes on inserting.
	Outside []string
}

// Done reports whether nothing is missing.
func (m *Migration) Done() bool { return len(m.Inside)+len(m.Outside) == 0 }

// Print writes SQL that does what Migrate would do. It is for psql, as the owner of the table.
func (m *Migration) Print(w io.Writer) error {
	var b strings.Builder
	if m.Done() {
		fmt.Fprintf(&b, "-- Nothing to do: %s is complete.\n", &m.Table)
	}
	if len(m.Inside) > 0 {
		b.WriteString("BEGIN;\n\n")
		for _, s := range m.Inside {
			b.WriteString(s + ";\n\n")
		}
		b.WriteString("COMMIT;\n")
	}
	if len(m.Outside) > 0 {
		b.WriteString("\n-- Outside a transaction: the app goes on inserting meanwhile.\n")
		for _, s := range m.Outside {
			b.WriteString(s + ";\n")
		}
	}
	table := m.Table.Quoted()
	fmt.Fprintf(&b, `
-- What the sidecar's role needs, if it is not the owner:
--   GRANT USAGE ON SCHEMA %s TO …;
--   GRANT SELECT, UPDATE (%s) ON %s TO …;
-- and for prune, and with SIDECAR_OUTBOX_RETENTION:
--   GRANT DELETE ON %[3]s TO …;
`, Quote(m.Table.Schema), strings.Join(m.marked(), ", "), table)
	_, err := io.WriteString(w, b.String())
	return err
}

// marked are the columns that the relay writes to, in SQL.
func (m *Migration) marked() []string {
	columns := []string{Quote(m.Table.Column(colSentAt))}
	for _, c := range bookkeepingColumns {
		columns = append(columns, Quote(m.Table.Column(c)))
	}
	return columns
}

// PlanMigration returns what is missing. It only reads the catalogue, which every role may do. notify says whether
// inserts are to notify the relays. The error is ErrNotOutbox when the table cannot become an outbox.
func PlanMigration(ctx context.Context, conn *pgconn.PgConn, n Names, notify bool) (*Migration, error) {
	if err := checkVersion(ctx, conn); err != nil {
		return nil, err
	}
	t, err := Look(ctx, conn, n)
	if errors.Is(err, ErrNoTable) {
		return planTable(ctx, conn, n, notify)
	}
	if err != nil {
		return nil, rights(err)
	}
	m := &Migration{Table: t.Names}
	if err := t.CheckApp(); err != nil {
		return nil, err
	}
	kind, err := checkAdopted(ctx, conn, t)
	if err != nil {
		return nil, err
	}
	if missing := t.Missing(); len(missing) > 0 {
		m.Inside = append(m.Inside, addColumns(m.Table, missing))
	}
	if err := m.planIndexes(ctx, conn, t, kind); err != nil {
		return nil, err
	}
	return m, m.planNotify(ctx, conn, t.OID, notify)
}

func checkVersion(ctx context.Context, conn *pgconn.PgConn) error {
	rows, err := query(ctx, conn, `SELECT current_setting('server_version_num'), current_setting('server_version')`)
	if err != nil {
		return fmt.Errorf("ask for the server's version: %w", err)
	}
	if v, err := strconv.Atoi(string(rows[0][0])); err != nil || v < minVersion {
		return fmt.Errorf("PostgreSQL %s is too old: 13 or later is needed", rows[0][1])
	}
	return nil
}

// planTable plans a new table.
func planTable(ctx context.Context, conn *pgconn.PgConn, n Names, notify bool) (*Migration, error) {
	const look = `SELECT c.relkind FROM pg_class c WHERE c.oid = to_regclass($1)`
	rows, err := query(ctx, conn, look, []byte(n.Quoted()))
	if err != nil {
		return nil, rights(err)
	}
	if len(rows) > 0 {
		return nil, fmt.Errorf("%s is %w: it is %s, and only a table can be claimed from", &n, ErrNotOutbox,
			kinds[string(rows[0][0])])
	}
	rows, err = query(ctx, conn, `SELECT COALESCE(NULLIF($1, ''), current_schema()), EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, []byte(n.Schema))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the schema: %w", err)
	case n.Schema != "" && string(rows[0][1]) == "f":
		return nil, fmt.Errorf("table %s: %w, and no schema %s either, which migrate does not make", &n, ErrNoTable, n.Schema)
	case rows[0][0] == nil:
		return nil, fmt.Errorf("table %s: %w, and the role's search_path leads to no schema to make it in: name one in "+
			"SIDECAR_OUTBOX_TABLE", &n, ErrNoTable)
	}
	n.Schema = string(rows[0][0])
	m := &Migration{Table: n, Create: true, Inside: []string{createTable(n)}}
	for _, i := range []index{pendingIndex, orderingIndex, quarantinedIndex} {
		m.Inside = append(m.Inside, i.create(n, false))
	}
	return m, m.planNotify(ctx, conn, 0, notify)
}

// kinds are what may have the table's name.
var kinds = map[string]string{
	"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index",
	"I": "an index", "c": "a composite type", "t": "a TOAST table",
}

// planIndexes builds what is missing concurrently where there is something to build: an index on an empty table is
// there at once, and with the table's other changes.
func (m *Migration) planIndexes(ctx context.Context, conn *pgconn.PgConn, t *Table, kind string) error {
	const size = `SELECT pg_relation_size($1::oid) + COALESCE((SELECT sum(pg_relation_size(relid)) FROM pg_partition_tree($1::oid::regclass)), 0)`
	rows, err := query(ctx, conn, size, oidParam(t.OID))
	if err != nil {
		return fmt.Errorf("ask for the size of table %s: %w", &t.Names, err)
	}
	filled := string(rows[0][0]) != "0"
	wanted := []index{pendingIndex, quarantinedIndex}
	if t.Has(colOrderingKey) {
		wanted = append(wanted, orderingIndex)
	}
	for _, i := range wanted {
		valid, broken, err := findIndex(ctx, conn, t, &i)
		if err != nil {
			return err
		}
		if valid {
			continue
		}
		if filled && kind == "p" {
			return fmt.Errorf("table %s has partitions with rows, and lacks an index, which PostgreSQL cannot build there "+
				"while rows are inserted. Build it on each partition, then on the table:\n%s", &t.Names, i.create(t.Names, false))
		}
		if broken {
			m.Outside = append(m.Outside, "DROP INDEX CONCURRENTLY "+(&Names{Schema: t.Schema,
				Table: derived(t.Table, i.suffix)}).Quoted())
		}
		if filled || broken {
			m.Outside = append(m.Outside, i.create(t.Names, true))
		} else {
			m.Inside = append(m.Inside, i.create(t.Names, false))
		}
	}
	return nil
}

// findIndex finds an index that does the work, with any name. broken is true for one of our name that an interrupted
// build has left, and that no query uses.
func findIndex(ctx context.Context, conn *pgconn.PgConn, t *Table, i *index) (valid, broken bool, err error) {
	const look = `SELECT c.relname, i.indisvalid AND i.indisready,
			pg_get_expr(i.indpred, i.indrelid) = format($2, VARIADIC $3::text[])
			AND ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k(n, o)
				JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n ORDER BY k.o) = $4::text[]
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = $1::oid`
	format, columns := i.predicate(t.Names)
	keys := make([]string, len(i.columns))
	for k, c := range i.columns {
		keys[k] = t.Column(c)
	}
	rows, err := query(ctx, conn, look, oidParam(t.OID), []byte(format), texts(columns), texts(keys))
	if err != nil {
		return false, false, fmt.Errorf("read the indexes of table %s: %w", &t.Names, err)
	}
	name := derived(t.Table, i.suffix)
	for _, row := range rows {
		ours, whole, same := string(row[0]) == name, string(row[1]) == "t", string(row[2]) == "t"
		switch {
		case whole && same:
			return true, false, nil
		case ours && same:
			broken = true
		case ours:
			return false, false, fmt.Errorf("index %s of table %s is another than migrate would make: drop or rename it, then "+
				"run migrate again", name, &t.Names)
		}
	}
	return false, broken, nil
}

// planNotify adds or removes the trigger; oid is the table's, 0 if it does not exist yet.
func (m *Migration) planNotify(ctx context.Context, conn *pgconn.PgConn, oid uint32, notify bool) error {
	name := derived(m.Table.Table, notifySuffix)
	source, trigger, err := findNotify(ctx, conn, &m.Table, oid)
	if err != nil {
		return err
	}
	foreign := source != "" && !strings.Contains(source, notifyMark)
	switch {
	case notify && foreign:
		return fmt.Errorf("there is a function %s.%s that migrate did not make: rename it, or use --no-notify",
			m.Table.Schema, name)
	case notify && source != notifySource:
		m.Inside = append(m.Inside, createFunction(m.Table))
	case !notify && !foreign && source != "":
		if trigger {
			m.Inside = append(m.Inside, "DROP TRIGGER "+Quote(name)+" ON "+m.Table.Quoted())
		}
		m.Inside = append(m.Inside, "DROP FUNCTION "+function(m.Table)+"()")
	}
	if notify && !trigger {
		m.Inside = append(m.Inside, createTrigger(m.Table))
	}
	return nil
}

// findNotify returns the source of the notifying function, "" if it does not exist, and whether the table has its
// trigger.
func findNotify(ctx context.Context, conn *pgconn.PgConn, n *Names, oid uint32) (source string, trigger bool,
	err error) {
	const look = `SELECT f.prosrc, EXISTS (SELECT FROM pg_trigger t WHERE t.tgfoid = f.oid AND t.tgrelid = $3::oid)
		FROM pg_proc f JOIN pg_namespace s ON s.oid = f.pronamespace WHERE s.nspname = $1 AND f.proname = $2 AND f.pronargs = 0`
	rows, err := query(ctx, conn, look, []byte(n.Schema), []byte(derived(n.Table, notifySuffix)), oidParam(oid))
	if err != nil {
		return "", false, fmt.Errorf("read the trigger of table %s: %w", n, err)
	}
	if len(rows) == 0 {
		return "", false, nil
	}
	return string(rows[0][0]), string(rows[0][1]) == "t", nil
}

func oidParam(oid uint32) []byte { return strconv.AppendUint(nil, uint64(oid), 10) }

// texts is an array of texts as a parameter.
func texts(values []string) []byte {
	return array(len(values), func(i int) (string, bool) { return values[i], false })
}
