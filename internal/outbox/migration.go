package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// minVersion is the oldest server that makes uuids by itself.
const minVersion = 13

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
		b.WriteString("BEGIN;\n\n" + strings.Join(m.Inside, ";\n\n") + ";\n\nCOMMIT;\n")
	}
	if len(m.Outside) > 0 {
		b.WriteString("\n-- Outside a transaction: the app goes on inserting meanwhile.\n" +
			strings.Join(m.Outside, ";\n") + ";\n")
	}
	b.WriteString(m.Table.expand(`
-- What the sidecar's role needs, if it is not the owner:
--   GRANT USAGE ON SCHEMA {schema} TO …;
--   GRANT SELECT, UPDATE ({sent_at}, {send_after}, {attempts}, {last_error}, {quarantined_at}) ON {table} TO …;
-- and for prune, and with SIDECAR_OUTBOX_RETENTION:
--   GRANT DELETE ON {table} TO …;
`, "{schema}", Quote(m.Table.Schema)))
	_, err := io.WriteString(w, b.String())
	return err
}

// PlanMigration returns what is missing. It only reads the catalogue, which every role may do. notify says whether
// inserts are to notify the relays. The error is errNotOutbox when the table cannot become an outbox.
func PlanMigration(ctx context.Context, conn *pgconn.PgConn, n Names, notify bool) (*Migration, error) {
	version, major := conn.ParameterStatus("server_version"), 0
	if _, err := fmt.Sscanf(version, "%d", &major); err != nil || major < minVersion {
		return nil, fmt.Errorf("PostgreSQL %s is too old: %d or later is needed", version, minVersion)
	}
	m := &Migration{}
	t, err := readTable(ctx, conn, n)
	switch m.Create = errors.Is(err, ErrNoTable); {
	case m.Create && t.Schema == "" && n.Schema == "":
		return nil, fmt.Errorf("%w, and the role's search_path leads to no schema to make it in: name one in "+
			"SIDECAR_OUTBOX_TABLE", err)
	case m.Create && t.Schema == "":
		return nil, fmt.Errorf("%w, and no schema %s either, which migrate does not make", err, n.Schema)
	case m.Create:
		m.Inside = append(m.Inside, "CREATE TABLE "+t.quoted()+" (\n"+t.definitions("", nil)+"\n)")
	case err != nil:
		return nil, rights(err)
	default:
		if err := cmp.Or(t.checkApp(), t.adoptable()); err != nil {
			return nil, err
		}
		if missing, _ := t.missing(bookkeepingColumns); missing != nil {
			m.Inside = append(m.Inside, "ALTER TABLE "+t.quoted()+"\n"+t.definitions("ADD COLUMN ", missing))
		}
	}
	m.Table = t.Names
	if err := m.planIndexes(t); err != nil {
		return nil, err
	}
	return m, m.planNotify(t, notify)
}

// planIndexes builds what is missing concurrently where there is something to build: an index on an empty table is
// there at once, and with the table's other changes.
func (m *Migration) planIndexes(t *Table) error {
	wanted := []index{pendingIndex, quarantinedIndex}
	if m.Create || t.Has(colOrderingKey) {
		wanted = append(wanted, orderingIndex)
	}
	for _, i := range wanted {
		same := func(other Index) bool { return other.Whole && i.matches(t, other) }
		if slices.ContainsFunc(t.Indexes, same) {
			continue
		}
		name := derived(t.Table, i.suffix)
		ours := slices.IndexFunc(t.Indexes, func(other Index) bool { return other.Name == name })
		switch {
		case ours >= 0 && !i.matches(t, t.Indexes[ours]):
			return fmt.Errorf("index %s of table %s is another than migrate would make: drop or rename it, then run migrate "+
				"again", name, &t.Names)
		case t.Filled && t.Kind == "p":
			return fmt.Errorf("table %s has partitions with rows, and lacks an index, which PostgreSQL cannot build there "+
				"while rows are inserted. Build it on each partition, then on the table:\n%s", &t.Names, i.create(t, ""))
		case ours >= 0:
			broken := Names{Schema: t.Schema, Table: name}
			m.Outside = append(m.Outside, "DROP INDEX CONCURRENTLY "+broken.quoted(), i.create(t, "CONCURRENTLY "))
		case t.Filled:
			m.Outside = append(m.Outside, i.create(t, "CONCURRENTLY "))
		default:
			m.Inside = append(m.Inside, i.create(t, ""))
		}
	}
	return nil
}

// planNotify adds or removes the trigger, and the function that it calls.
func (m *Migration) planNotify(t *Table, notify bool) error {
	f, table := t.notifier(), t.quoted()
	foreign := t.Source != "" && !strings.Contains(t.Source, notifyMark)
	switch {
	case notify && foreign:
		return fmt.Errorf("there is a function %s that migrate did not make: rename it, or use --no-notify", f)
	case notify && t.Source != notifySource:
		m.Inside = append(m.Inside, "CREATE OR REPLACE FUNCTION "+f.quoted()+"() RETURNS trigger LANGUAGE plpgsql AS $$"+
			notifySource+"$$")
	case !notify && !foreign && t.Source != "":
		if t.Trigger {
			m.Inside = append(m.Inside, "DROP TRIGGER "+Quote(f.Table)+" ON "+table)
		}
		m.Inside = append(m.Inside, "DROP FUNCTION "+f.quoted()+"()")
	}
	if notify && !t.Trigger {
		m.Inside = append(m.Inside, "CREATE TRIGGER "+Quote(f.Table)+" AFTER INSERT ON "+table+
			"\n  FOR EACH STATEMENT EXECUTE FUNCTION "+f.quoted()+"()")
	}
	return nil
}

// want is what a column of an existing table has to be.
type want struct {
	types    []string // as format_type says them, without a length; none: any
	text     bool     // a text of any kind, or an enum
	writable bool     // the relay writes to it
	null     bool     // it is null before
	unbound  bool     // a text of any length has to fit
}

// wrong says what is wrong with a column, "" if nothing is.
func (w *want) wrong(c Column) string {
	switch {
	case w.text && (!c.Text || c.Base == "character"): // char(n) comes with blanks at its end
		return "is " + c.Base + " and has to be text, character varying or an enum"
	case w.types != nil && !slices.Contains(w.types, c.Base):
		return "is " + c.Base + " and has to be " + strings.Join(w.types, " or ")
	case w.writable && c.Generated:
		return "is generated, and the relay has to write to it"
	case w.null && c.NotNull:
		return "is NOT NULL and has to be null until the relay writes to it"
	case w.unbound && c.Bounded:
		return "has a length, and errors may be longer"
	}
	return ""
}

// adoptable says why an existing table that has all the columns cannot be an outbox: errNotOutbox.
func (t *Table) adoptable() error {
	if !t.Logged {
		return t.unusable("it is not logged, so a crash of the server would empty it (ALTER TABLE … SET LOGGED)")
	}
	for _, c := range columns {
		if found, has := t.Found[c.name]; has {
			if wrong := c.want.wrong(found); wrong != "" {
				return t.unusable("column %s %s", found.Name, wrong)
			}
		}
	}
	return nil
}
