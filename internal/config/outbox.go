package config

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Outbox is the table of messages in the app's database that are to be published.
type Outbox struct {
	// The database: `postgres://user:password@host:5432/name?sslmode=verify-full`, or as `host=… dbname=…`. Unset: no
	// relay. It is read again at every connect.
	DSN Secret `env:"OUTBOX_DSN" allowed:"a PostgreSQL connection URI or keyword/value string"`

	// The table, with its schema if that is not the first of the role's `search_path`. Upper and lower case differ.
	Table string `env:"OUTBOX_TABLE" check:"table" envDefault:"outbox" allowed:"'table' or 'schema.table' of letters, digits, '_', '-' and '$', each at most 63 bytes"`

	// What the columns of an existing table are called, where that differs: `body=payload,routing_key=topic`.
	Columns map[string]string `env:"OUTBOX_COLUMNS" check:"columns" allowed:"'column=name', separated by commas; the columns are 'id', 'exchange', 'routing_key', 'body', 'headers', 'properties', 'message_id', 'tracking_ids', 'ordering_key', 'created_at', 'send_after', 'sent_at', 'attempts', 'last_error' and 'quarantined_at'"`

	// How often the table is polled when no notification arrives. Rows that are due later, or whose notification was lost,
	// wait at most this long.
	PollInterval time.Duration `env:"OUTBOX_POLL_INTERVAL" envDefault:"1s" range:"10ms..1h"`

	// Rows that were sent longer ago are deleted. Unset: none are.
	Retention time.Duration `env:"OUTBOX_RETENTION" otherwise:"kept" range:"1m..87600h"` // 0 = kept
}

// outboxColumns are what the columns of an outbox are called unless SIDECAR_OUTBOX_COLUMNS says otherwise.
var outboxColumns = strings.Fields(`id exchange routing_key body headers properties message_id tracking_ids ordering_key
	created_at send_after sent_at attempts last_error quarantined_at`)

var (
	aliasPattern      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	identifierPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$-]*$`)
)

// maxIdentifier is the longest name that PostgreSQL does not cut, in bytes. A pattern that counts to it takes 60 KB of
// memory.
const maxIdentifier = 63

func isIdentifier(name string) bool {
	return len(name) <= maxIdentifier && identifierPattern.MatchString(name)
}

func isTable(name string) bool {
	schema, table, found := strings.Cut(name, ".")
	return isIdentifier(schema) && (!found || isIdentifier(table))
}

func checkColumns(v string) error {
	columns, _ := parsePairs(v)
	for _, c := range slices.Sorted(maps.Keys(columns)) {
		switch {
		case !slices.Contains(outboxColumns, c):
			return fmt.Errorf("an outbox has no column %s", shown(c))
		case !isIdentifier(columns[c]):
			return fmt.Errorf("%s is not the name of a column", shown(columns[c]))
		}
	}
	seen := map[string]bool{}
	for _, c := range outboxColumns {
		name := cmp.Or(columns[c], c)
		if seen[name] {
			return fmt.Errorf("two columns would be %s", shown(name))
		}
		seen[name] = true
	}
	return nil
}
