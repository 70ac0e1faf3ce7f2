package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// What a table can lack. Test with errors.Is; the text says more.
var (
	// ErrNoTable: the table does not exist, or is not in the role's search_path.
	ErrNoTable = errors.New("no such table")
	// errNotOutbox: the table cannot be used as an outbox as it is.
	errNotOutbox = errors.New("not usable as an outbox")
)

// Columns of an outbox, by their own names, which Names.Columns may change.
const (
	colID, colExchange, colRoutingKey, colBody, colHeaders = "id", "exchange", "routing_key", "body", "headers"
	colProperties, colMessageID, colTrackingIDs            = "properties", "message_id", "tracking_ids"
	colOrderingKey, colCreatedAt, colSendAfter, colSentAt  = "ordering_key", "created_at", "send_after", "sent_at"
	colAttempts, colLastError, colQuarantinedAt            = "attempts", "last_error", "quarantined_at"
)

var (
	// requiredColumns are the app's: an existing table without them is not an outbox.
	requiredColumns = []string{colID, colRoutingKey, colBody, colSentAt}
	// bookkeepingColumns are the relay's, and are added to a table that was made by others.
	bookkeepingColumns = []string{colSendAfter, colAttempts, colLastError, colQuarantinedAt}
)

// Names say which table is the outbox and what its columns are called there.
type Names struct {
	Schema  string // "" = the first of the role's search_path that has the table
	Table   string
	Columns map[string]string // what columns are called in the table; the others have their own names
}

// ParseTable splits 'table' or 'schema.table'.
func ParseTable(text string, columns map[string]string) Names {
	if schema, table, found := strings.Cut(text, "."); found {
		return Names{schema, table, columns}
	}
	return Names{"", text, columns}
}

// Column is what the column is called in the table, unquoted.
func (n *Names) Column(column string) string {
	return cmp.Or(n.Columns[column], column)
}

// quoted is the table in SQL.
func (n *Names) quoted() string {
	if n.Schema == "" {
		return Quote(n.Table)
	}
	return Quote(n.Schema) + "." + Quote(n.Table)
}

// String is the table in text for people.
func (n *Names) String() string { return strings.TrimPrefix(n.Schema+"."+n.Table, ".") }

// expand puts the table and its columns into SQL, and more: pairs of a placeholder and what replaces it.
func (n *Names) expand(sql string, more ...string) string {
	replace := []string{"{table}", n.quoted()}
	for _, c := range columns {
		replace = append(replace, "{"+c.name+"}", Quote(n.Column(c.name)))
	}
	return strings.NewReplacer(append(replace, more...)...).Replace(sql)
}

// unusable returns an errNotOutbox.
func (n *Names) unusable(format string, args ...any) error {
	return fmt.Errorf("table %s is %w: %s", n, errNotOutbox, fmt.Sprintf(format, args...))
}

// Quote makes an identifier of any name.
func Quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Column is one of an outbox's columns as the catalogue has it.
type Column struct {
	Name      string // in the table, unquoted
	Type      string // as format_type says it: "bigint", "character varying(36)"
	Base      string // the same without a length, and of its base for a domain
	Text      bool   // the type is a text of any kind, or an enum
	Bounded   bool   // the type has a length
	NotNull   bool
	Generated bool
	Unique    bool // it has a unique index of its own
}

// Table is an outbox as the catalogue has it. Its schema is the one where it was found.
type Table struct {
	Names

	Database string
	OID      uint32
	Kind     string // pg_class.relkind
	Logged   bool
	Filled   bool              // it or a partition of it has pages
	Vacuums  bool              // the role may vacuum it
	Found    map[string]Column // by their own names
	Indexes  []Index
	Trigger  bool   // inserts notify
	Source   string // of the trigger's function, "" if it does not exist; it may be there without the trigger
}

// Index is an index of the table.
type Index struct {
	Name, Definition string // by pg_get_indexdef
	Whole            bool   // not the remains of an interrupted build, which no query uses
}

// kinds are what else than a table may have its name, by Table.Kind.
var kinds = map[string]string{
	"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "i": "an index",
	"I": "an index", "c": "a composite type", "t": "a TOAST table",
}

// readTable reads the table from the catalogue. The error is errNotOutbox when it is not a table, and ErrNoTable when
// it does not exist: the result then has the schema where it would be made, "" if there is none, and what is there.
func readTable(ctx context.Context, conn *pgconn.PgConn, n Names) (*Table, error) {
	// An index identifies a row by one column when it is unique, whole, valid now and has no other column.
	const look = `SELECT json_build_object('OID', COALESCE(c.oid, 0)::bigint, 'Schema', COALESCE(s.nspname, ''),
		'Database', current_database(), 'Kind', c.relkind, 'Logged', c.relpersistence = 'p',
		'Filled', pg_relation_size(c.oid)
			+ COALESCE((SELECT sum(pg_relation_size(relid)) FROM pg_partition_tree(c.oid::regclass)), 0) > 0,
		'Vacuums', pg_has_role(c.relowner, 'USAGE') OR CASE WHEN current_setting('server_version_num')::int >= 170000
			THEN has_table_privilege(c.oid, 'MAINTAIN') ELSE false END,
		'Found', (
			SELECT json_object_agg(own, json_build_object('Name', a.attname, 'Type', format_type(a.atttypid, a.atttypmod),
				'Base', format_type(y.oid, NULL), 'Text', y.typcategory IN ('S', 'E'), 'Bounded', a.atttypmod <> -1,
				'NotNull', a.attnotnull, 'Generated', a.attgenerated <> '', 'Unique', EXISTS (
					SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
						AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum AND i.indpred IS NULL)))
			FROM unnest($3::text[], $4::text[]) AS w(own, name) JOIN pg_attribute a ON a.attname = w.name
			JOIN pg_type d ON d.oid = a.atttypid JOIN pg_type y ON y.oid = COALESCE(NULLIF(d.typbasetype, 0), d.oid)
			WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
		'Indexes', (
			SELECT json_agg(json_build_object('Name', x.relname, 'Definition', pg_get_indexdef(x.oid),
				'Whole', i.indisvalid AND i.indisready))
			FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = c.oid),
		'Trigger', EXISTS (SELECT FROM pg_trigger WHERE tgfoid = f.oid AND tgrelid = c.oid), 'Source', f.prosrc)
		FROM (SELECT to_regclass($1) AS oid) r LEFT JOIN pg_class c ON c.oid = r.oid
		LEFT JOIN pg_namespace s ON CASE WHEN c.oid IS NULL THEN s.nspname = COALESCE(NULLIF($2, ''), current_schema())
			ELSE s.oid = c.relnamespace END
		LEFT JOIN pg_proc f ON f.pronamespace = s.oid AND f.proname = $5 AND f.pronargs = 0`
	var own, called []string
	for _, c := range columns {
		own, called = append(own, c.name), append(called, n.Column(c.name))
	}
	t := &Table{Names: n}
	err := readJSON(ctx, conn, t, look, []byte(n.quoted()), []byte(n.Schema), texts(own), texts(called),
		[]byte(n.notifier().Table))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read table %s: %w", &n, err)
	case t.OID == 0:
		return t, fmt.Errorf("table %s: %w", &n, ErrNoTable)
	case kinds[t.Kind] != "":
		return nil, t.unusable("it is %s, and only a table can be claimed from", kinds[t.Kind])
	}
	return t, nil
}

// Ready reads the table, and checks that the relay can work with it. The errors are those of readTable and Check.
func Ready(ctx context.Context, conn *pgconn.PgConn, n Names) (*Table, error) {
	t, err := readTable(ctx, conn, n)
	if err != nil {
		return nil, err
	}
	return t, t.Check()
}

// Has reports whether the table has the column.
func (t *Table) Has(column string) bool {
	_, found := t.Found[column]
	return found
}

// Channel is what a trigger on the table notifies: the prefix and TG_RELID. It holds the table's OID
// and not its name, which may be longer than a channel's, and be there in two schemas.
func (t *Table) Channel() string { return channelPrefix + strconv.FormatUint(uint64(t.OID), 10) }

const channelPrefix = "sidecar_outbox_"

// bodyJSON reports whether bodies are JSON by the type of their column.
func (t *Table) bodyJSON() bool { return isJSON(t.Found[colBody].Base) }

func isJSON(base string) bool { return base == "json" || base == "jsonb" }

// checkApp says what makes the table no outbox at all: errNotOutbox, nil if nothing does. Bookkeeping may be missing.
func (t *Table) checkApp() error {
	id, body := t.Found[colID], t.Found[colBody]
	if _, missing := t.missing(requiredColumns); missing != "" {
		return t.unusable("it has no column %s (SIDECAR_OUTBOX_COLUMNS says what columns are called)", missing)
	}
	if !id.NotNull || !id.Unique {
		return t.unusable("column %s needs NOT NULL and a unique index of its own, else one row could not be marked "+
			"without another", id.Name)
	}
	if !isJSON(body.Base) && !t.exact(colBody) {
		return t.unusable("column %s is %s and has to be bytea, text, json or jsonb", body.Name, body.Type)
	}
	return nil
}

// Check says what keeps the relay from working with the table: errNotOutbox, nil if nothing does.
func (t *Table) Check() error {
	if err := t.checkApp(); err != nil {
		return err
	}
	if _, missing := t.missing(bookkeepingColumns); missing != "" {
		return t.unusable("it has no column %s; 'sidecar outbox migrate' adds what is missing", missing)
	}
	return nil
}

// missing gives those of the columns that the table lacks, and what they would be called.
func (t *Table) missing(wanted []string) (own []string, called string) {
	var names []string
	for _, c := range wanted {
		if !t.Has(c) {
			own, names = append(own, c), append(names, t.Column(c))
		}
	}
	return own, strings.Join(names, ", ")
}

// query runs one statement with text parameters and reads all of its rows, as text. nil is NULL.
func query(ctx context.Context, conn *pgconn.PgConn, sql string, params ...[]byte) ([][][]byte, error) {
	r := conn.ExecParams(ctx, sql, params, nil, nil, nil).Read()
	return r.Rows, r.Err
}

// readJSON runs one statement that gives one row, and decodes the JSON in it.
func readJSON(ctx context.Context, conn *pgconn.PgConn, into any, sql string, params ...[]byte) error {
	rows, err := query(ctx, conn, sql, params...)
	if err != nil {
		return err
	}
	return json.Unmarshal(rows[0][0], into)
}
