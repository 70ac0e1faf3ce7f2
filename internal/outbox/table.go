package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// What a table can lack. Test with errors.Is; the text says more.
var (
	// ErrNoTable: the table does not exist, or is not in the role's search_path.
	ErrNoTable = errors.New("no such table")
	// ErrNotOutbox: the table cannot be used as an outbox as it is.
	ErrNotOutbox = errors.New("not usable as an outbox")
)

// Columns of an outbox, by the names that Names.Columns may change.
const (
	colID, colExchange, colRoutingKey, colBody, colHeaders = "id", "exchange", "routing_key", "body", "headers"
	colProperties, colMessageID, colTrackingIDs            = "properties", "message_id", "tracking_ids"
	colOrderingKey, colCreatedAt, colSendAfter, colSentAt  = "ordering_key", "created_at", "send_after", "sent_at"
	colAttempts, colLastError, colQuarantinedAt            = "attempts", "last_error", "quarantined_at"
)

var (
	// allColumns are in the order in which they are created.
	allColumns = []string{
		colID, colMessageID, colExchange, colRoutingKey, colBody, colHeaders, colProperties, colTrackingIDs, colOrderingKey,
		colCreatedAt, colSendAfter, colSentAt, colAttempts, colLastError, colQuarantinedAt,
	}
	// requiredColumns are the app's: an existing table without them is not an outbox.
	requiredColumns = []string{colID, colRoutingKey, colBody, colSentAt}
	// bookkeepingColumns are the relay's, and are added to a table that was made by others.
	bookkeepingColumns = []string{colSendAfter, colAttempts, colLastError, colQuarantinedAt}
)

// Names say which table is the outbox and what its columns are called there.
type Names struct {
	Schema  string // "" = the first of the role's search_path that has the table
	Table   string
	Columns map[string]string // by the column's own name, where the table's differs
}

// ParseTable splits 'table' or 'schema.table'. column says what a column is called; nil = by its own name.
func ParseTable(text string, column func(string) string) Names {
	schema, table, found := strings.Cut(text, ".")
	if !found {
		schema, table = "", text
	}
	n := Names{Schema: schema, Table: table, Columns: map[string]string{}}
	if column != nil {
		for _, c := range allColumns {
			if name := column(c); name != c {
				n.Columns[c] = name
			}
		}
	}
	return n
}

// Column is what the column is called in the table, unquoted.
func (n *Names) Column(column string) string {
	if name, found := n.Columns[column]; found {
		return name
	}
	return column
}

// Quoted is the table in SQL.
func (n *Names) Quoted() string {
	if n.Schema == "" {
		return Quote(n.Table)
	}
	return Quote(n.Schema) + "." + Quote(n.Table)
}

// String is the table in text for people.
func (n *Names) String() string {
	if n.Schema == "" {
		return n.Table
	}
	return n.Schema + "." + n.Table
}

// Quote makes an identifier of any name.
func Quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// Column is one of an outbox's columns as the catalogue has it.
type Column struct {
	Name    string // in the table, unquoted
	Type    string // as format_type says it: "bigint", "character varying(36)"
	OID     uint32 // of the type, and of its base for a domain
	NotNull bool
	Default bool // has a default, or is an identity
}

// Table is an outbox as the catalogue has it. Its schema is the one where it was found.
type Table struct {
	Names

	Database string
	OID      uint32
	UniqueID bool // id has a unique index of its own, and is never null

	columns map[string]Column // by their own names
}

// Look reads the table from the catalogue. The error is ErrNoTable when it does not exist.
func Look(ctx context.Context, conn *pgconn.PgConn, n Names) (*Table, error) {
	const find = `SELECT c.oid, s.nspname, current_database() FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
		WHERE c.oid = to_regclass($1) AND c.relkind IN ('r', 'p')`
	rows, err := query(ctx, conn, find, []byte(n.Quoted()))
	if err != nil {
		return nil, fmt.Errorf("find table %s: %w", &n, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("table %s: %w", &n, ErrNoTable)
	}
	oid, err := strconv.ParseUint(string(rows[0][0]), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("find table %s: %w", &n, err)
	}
	t := &Table{Names: n, Database: string(rows[0][2]), OID: uint32(oid), columns: map[string]Column{}}
	t.Schema = string(rows[0][1])
	t.Columns = maps.Clone(n.Columns)
	if err := t.lookColumns(ctx, conn); err != nil {
		return nil, fmt.Errorf("read table %s: %w", &n, err)
	}
	return t, nil
}

func (t *Table) lookColumns(ctx context.Context, conn *pgconn.PgConn) error {
	// An index identifies a row by one column when it is unique, whole, valid now and has no other column.
	const look = `SELECT a.attname, format_type(a.atttypid, a.atttypmod), COALESCE(NULLIF(y.typbasetype, 0), y.oid), a.attnotnull,
		a.atthasdef OR a.attidentity <> '',
		EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid AND i.indimmediate
			AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum AND i.indpred IS NULL)
		FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid
		WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped`
	rows, err := query(ctx, conn, look, strconv.AppendUint(nil, uint64(t.OID), 10))
	if err != nil {
		return err
	}
	for _, row := range rows {
		oid, err := strconv.ParseUint(string(row[2]), 10, 32)
		if err != nil {
			return err
		}
		c := Column{
			Name: string(row[0]), Type: string(row[1]), OID: uint32(oid),
			NotNull: string(row[3]) == "t", Default: string(row[4]) == "t",
		}
		i := slices.IndexFunc(allColumns, func(column string) bool { return t.Column(column) == c.Name })
		if i < 0 {
			continue
		}
		t.columns[allColumns[i]] = c
		if allColumns[i] == colID {
			t.UniqueID = c.NotNull && string(row[5]) == "t"
		}
	}
	return nil
}

// Has reports whether the table has the column.
func (t *Table) Has(column string) bool {
	_, found := t.columns[column]
	return found
}

// Get is the column as the catalogue has it.
func (t *Table) Get(column string) (c Column, found bool) {
	c, found = t.columns[column]
	return c, found
}

// Ref is the column in SQL.
func (t *Table) Ref(column string) string { return Quote(t.Column(column)) }

// Channel is what a trigger on the table notifies: the prefix and TG_RELID. It holds the table's OID
// and not its name, which may be longer than a channel's, and be there in two schemas.
func (t *Table) Channel() string { return channelPrefix + strconv.FormatUint(uint64(t.OID), 10) }

const channelPrefix = "sidecar_outbox_"

// Types of a body, by their OIDs, which are the same in every database.
const (
	oidBytea, oidText, oidVarchar, oidBpchar uint32 = 17, 25, 1043, 1042
	oidJSON, oidJSONB                        uint32 = 114, 3802
)

// BodyJSON reports whether bodies are JSON by the type of their column.
func (t *Table) BodyJSON() bool {
	oid := t.columns[colBody].OID
	return oid == oidJSON || oid == oidJSONB
}

// CheckApp says what makes the table no outbox at all: ErrNotOutbox, nil if nothing does. Bookkeeping may be missing.
func (t *Table) CheckApp() error {
	if missing := t.missing(requiredColumns); len(missing) > 0 {
		return fmt.Errorf("table %s is %w: it has no column %s (SIDECAR_OUTBOX_COLUMNS says what columns are called)",
			&t.Names, ErrNotOutbox, strings.Join(missing, ", "))
	}
	if !t.UniqueID {
		return fmt.Errorf("table %s is %w: column %s needs NOT NULL and a unique index of its own, else one row could not "+
			"be marked without another", &t.Names, ErrNotOutbox, t.columns[colID].Name)
	}
	body := t.columns[colBody]
	if !slices.Contains([]uint32{oidBytea, oidText, oidVarchar, oidBpchar, oidJSON, oidJSONB}, body.OID) {
		return fmt.Errorf("table %s is %w: column %s is %s and has to be bytea, text, json or jsonb",
			&t.Names, ErrNotOutbox, body.Name, body.Type)
	}
	return nil
}

// Missing are the bookkeeping columns that the table lacks, by their own names.
func (t *Table) Missing() []string {
	return slices.DeleteFunc(slices.Clone(bookkeepingColumns), t.Has)
}

// Check says what keeps the relay from working with the table: ErrNotOutbox, nil if nothing does.
func (t *Table) Check() error {
	if err := t.CheckApp(); err != nil {
		return err
	}
	if missing := t.missing(bookkeepingColumns); len(missing) > 0 {
		return fmt.Errorf("table %s is %w: it has no column %s; 'sidecar outbox migrate' adds what is missing",
			&t.Names, ErrNotOutbox, strings.Join(missing, ", "))
	}
	return nil
}

// missing gives what those of the columns that are not there would be called.
func (t *Table) missing(columns []string) []string {
	var names []string
	for _, c := range columns {
		if !t.Has(c) {
			names = append(names, t.Column(c))
		}
	}
	return names
}

// query runs one statement with text parameters and reads all of its rows, as text. nil is NULL.
func query(ctx context.Context, conn *pgconn.PgConn, sql string, params ...[]byte) ([][][]byte, error) {
	r := conn.ExecParams(ctx, sql, params, nil, nil, nil).Read()
	return r.Rows, r.Err
}
