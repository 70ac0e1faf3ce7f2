package outbox

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
)

// TestTableOfOthers checks a table with names that need quotes, a domain, and only what an app needs.
func TestTableOfOthers(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	conn := db.Conn()
	db.Exec(`CREATE SCHEMA "My-Shop"; CREATE DOMAIN payload AS jsonb;
		CREATE TABLE "My-Shop"."Out-Box" ("Id" varchar(36) PRIMARY KEY, topic text NOT NULL, payload payload NOT NULL, sent_at timestamptz,
			gone int, "order" text); ALTER TABLE "My-Shop"."Out-Box" DROP COLUMN gone`)
	renamed := map[string]string{"id": "Id", "routing_key": "topic", "body": "payload", "ordering_key": "order"}
	names := ParseTable("My-Shop.Out-Box", renamed)
	table := must.Get(readTable(t.Context(), conn, names))(t)
	if err := table.checkApp(); err != nil {
		t.Errorf("the app's part: %v", err)
	}
	if got, _ := table.missing(bookkeepingColumns); !slices.Equal(got, []string{"send_after", "attempts", "last_error", "quarantined_at"}) {
		t.Errorf("missing %q", got)
	}
	if err := table.Check(); !errors.Is(err, errNotOutbox) || !strings.Contains(err.Error(), "send_after, attempts, last_error, quarantined_at; 'sidecar outbox migrate'") {
		t.Errorf("check: %v", err)
	}
	id := table.Found["id"]
	if id.Name != "Id" || id.Type != "character varying(36)" || !id.NotNull || !table.bodyJSON() || !table.Has("ordering_key") || table.Has("headers") {
		t.Errorf("id %+v, JSON %t, ordering_key %t, headers %t", id, table.bodyJSON(), table.Has("ordering_key"), table.Has("headers"))
	}
	if table.quoted() != `"My-Shop"."Out-Box"` || table.expand("{ordering_key}") != `"order"` || !strings.HasPrefix(table.Channel(), "sidecar_outbox_") {
		t.Errorf("%s %s %s", table.quoted(), table.expand("{ordering_key}"), table.Channel())
	}
}

// TestTableBySearchPath finds the schema of a table that was named without one.
func TestTableBySearchPath(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	conn := db.Conn()
	db.Exec(`CREATE SCHEMA shop; CREATE TABLE shop.outbox (id int)`)
	must.Do(t, exec(t.Context(), conn, `SET search_path = shop`))
	table, err := readTable(t.Context(), conn, ParseTable("outbox", nil))
	if err != nil || table.Schema != "shop" {
		t.Fatalf("%+v, %v", table, err)
	}
}
