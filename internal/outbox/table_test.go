package outbox

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/postgrestest"
)

// TestTableOfOthers looks at a table with names that need quotes, a domain, and only what an app needs.
func TestTableOfOthers(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	conn := db.Conn()
	db.Exec(`CREATE SCHEMA "My-Shop"; CREATE DOMAIN payload AS jsonb;
		CREATE TABLE "My-Shop"."Out-Box" ("Id" varchar(36) PRIMARY KEY, topic text NOT NULL, payload payload NOT NULL, sent_at timestamptz,
			gone int, "order" text); ALTER TABLE "My-Shop"."Out-Box" DROP COLUMN gone`)
	renamed := map[string]string{"id": "Id", "routing_key": "topic", "body": "payload", "ordering_key": "order"}
	names := ParseTable("My-Shop.Out-Box", func(column string) string { return cmp.Or(renamed[column], column) })
	table, err := Look(t.Context(), conn, names)
	if err != nil {
		t.Fatal(err)
	}
	if err := table.CheckApp(); err != nil {
		t.Errorf("the app's part: %v", err)
	}
	if got := table.Missing(); !slices.Equal(got, []string{"send_after", "attempts", "last_error", "quarantined_at"}) {
		t.Errorf("missing %q", got)
	}
	if err := table.Check(); !errors.Is(err, ErrNotOutbox) || !strings.Contains(err.Error(), "send_after, attempts, last_error, quarantined_at; 'sidecar outbox migrate'") {
		t.Errorf("check: %v", err)
	}
	id, _ := table.Get("id")
	if id.Name != "Id" || id.Type != "character varying(36)" || !id.NotNull || !table.BodyJSON() || !table.Has("ordering_key") || table.Has("headers") {
		t.Errorf("id %+v, JSON %t, ordering_key %t, headers %t", id, table.BodyJSON(), table.Has("ordering_key"), table.Has("headers"))
	}
	if table.Quoted() != `"My-Shop"."Out-Box"` || table.Ref("ordering_key") != `"order"` || !strings.HasPrefix(table.Channel(), "sidecar_outbox_") {
		t.Errorf("%s %s %s", table.Quoted(), table.Ref("ordering_key"), table.Channel())
	}
}

// TestTableBySearchPath finds the schema of a table that was named without one.
func TestTableBySearchPath(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	conn := db.Conn()
	db.Exec(`CREATE SCHEMA shop; CREATE TABLE shop.outbox (id int)`)
	if err := exec(t.Context(), conn, `SET search_path = shop`); err != nil {
		t.Fatal(err)
	}
	table, err := Look(t.Context(), conn, ParseTable("outbox", nil))
	if err != nil || table.Schema != "shop" {
		t.Fatalf("%+v, %v", table, err)
	}
}

// TestNotAnOutbox is the list of tables that are refused, and why.
func TestNotAnOutbox(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	conn := db.Conn()
	const rest = `, routing_key text, body bytea, sent_at timestamptz)`
	for _, tc := range []struct{ name, sql, says string }{
		{"no table", `SELECT`, "no such table"},
		{"a view", `CREATE VIEW outbox AS SELECT 1 AS id`, "no such table"},
		{"no columns", `CREATE TABLE outbox (id bigint PRIMARY KEY, body bytea)`, "no column routing_key, sent_at"},
		{"no unique index", `CREATE TABLE outbox (id bigint NOT NULL` + rest, "unique index"},
		{"unique with another", `CREATE TABLE outbox (id bigint, PRIMARY KEY (id, sent_at)` + rest, "unique index"},
		{"unique in part", `CREATE TABLE outbox (id bigint NOT NULL` + rest + `; CREATE UNIQUE INDEX ON outbox (id) WHERE sent_at IS NULL`, "unique index"},
		{"nullable", `CREATE TABLE outbox (id bigint UNIQUE` + rest, "NOT NULL"},
		{"body", `CREATE TABLE outbox (id bigint PRIMARY KEY, routing_key text, body xml, sent_at timestamptz)`, "is xml"},
	} {
		db.Exec(`DROP SCHEMA public CASCADE; CREATE SCHEMA public; ` + tc.sql)
		table, err := Look(t.Context(), conn, ParseTable("outbox", nil))
		if err == nil {
			err = table.Check()
		}
		if err == nil || !strings.Contains(err.Error(), tc.says) || !errors.Is(err, ErrNotOutbox) && !errors.Is(err, ErrNoTable) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
