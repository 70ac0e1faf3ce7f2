package outbox

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/postgrestest"
)

// one publishes the one row of the table and returns its message.
func (r *rig) one() amqp.Delivery {
	r.t.Helper()
	r.start()
	r.settled()
	all := r.take()
	if len(all) != 1 {
		r.t.Fatalf("%d messages", len(all))
	}
	return all[0]
}

// TestMessage: every column of a row is in its message, in the types that AMQP has, and nothing that an app may not
// set.
func TestMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.db.Value(`INSERT INTO outbox (routing_key, body, headers, properties, tracking_ids) VALUES ('a.b', '\x00ff',
		'{"text": "é", "whole": 7, "large": 9007199254740993, "beyond": 18446744073709551616, "part": 1.5, "yes": true, "none": null, "list": [1, "b", []], "table": {"x": {}},
		  "CC": ["q"], "BCC": ["q"], "x-death": [], "x-first-death-queue": "q", "x-last-death-queue": "q", "x-delivery-count": 3, "x-retry-count": 3, "x-original-queue": "q", "x-original-exchange": "e", "x-original-routing-key": "k", "x-final-error": "e",
		  "x-redriven-at": "t", "x-outbox-tracking-ids": ["not this"]}',
		'{"content_type": "text/plain", "content_encoding": "gzip", "correlation_id": "c", "reply_to": "r", "type": "t", "app_id": "a", "priority": 9,
		  "expiration": 60000, "timestamp": "2026-01-31T12:00:00.9+01:00", "message_id": "not this", "delivery_mode": 1}', '["a", "b"]') RETURNING message_id`)
	d := r.one()
	if trace, _ := d.Headers["traceparent"].(string); len(trace) != 55 {
		t.Errorf("traceparent %q", trace)
	}
	delete(d.Headers, "traceparent")
	want := amqp.Table{
		"text": "é", "whole": int64(7), "large": int64(9007199254740993), "beyond": 18446744073709551616.0, "part": 1.5, "yes": true, "none": nil,
		"list": []any{int64(1), "b", []any(nil)}, "table": amqp.Table{"x": amqp.Table{}}, headerTracking: []any{"a", "b", id},
	}
	if !reflect.DeepEqual(d.Headers, want) {
		t.Errorf("headers\n%#v, want\n%#v", d.Headers, want)
	}
	if string(d.Body) != "\x00\xff" || d.RoutingKey != "a.b" || d.Exchange != r.exchange || d.MessageId != id || d.DeliveryMode != amqp.Persistent {
		t.Errorf("%+v", d)
	}
	at := time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC)
	if d.ContentType != "text/plain" || d.ContentEncoding != "gzip" || d.CorrelationId != "c" || d.ReplyTo != "r" || d.Type != "t" || d.AppId != "a" ||
		d.Priority != 9 || d.Expiration != "60000" || !d.Timestamp.Equal(at) {
		t.Errorf("properties %+v", d)
	}
	for body, kind := range map[string]string{`{"order": 1}`: "application/json", "order 1": ""} {
		r.db.Exec(`INSERT INTO outbox (routing_key, body, properties) VALUES ('a.b', '` + body + `', '{"timestamp": 1772000000.5}')`)
		if d := r.one(); d.ContentType != kind || d.Timestamp.Unix() != 1772000000 {
			t.Errorf("%s: content type %q, %s", body, d.ContentType, d.Timestamp)
		}
	}
}

// TestAdopted: tables that were made by others, with other names and types, and how the messages of their rows are
// called.
func TestAdopted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		table, create, insert, body, contentType, id string
		columns                                      map[string]string
	}{
		"other names": {
			table: "My-Shop.Out-Box$1", columns: map[string]string{"id": "Id", "routing_key": "topic", "body": "payload", "sent_at": "Published"},
			create: `CREATE SCHEMA "My-Shop"; CREATE TABLE "My-Shop"."Out-Box$1" ("Id" bigint PRIMARY KEY, topic text, payload text, "Published" timestamptz)`,
			insert: `INSERT INTO "My-Shop"."Out-Box$1" VALUES (7, 'k', 'ü')`, body: "ü", id: "DATABASE.My-Shop.Out-Box$1.7",
		},
		"uuid and jsonb": {
			table: "outbox", create: `CREATE TABLE outbox (id uuid PRIMARY KEY, routing_key text, body jsonb, sent_at timestamptz)`,
			insert: `INSERT INTO outbox VALUES ('0191b2a4-0000-7000-8000-000000000001', 'k', '{"b":1,"a":[]}')`,
			body:   `{"a": [], "b": 1}`, contentType: "application/json", id: "0191b2a4-0000-7000-8000-000000000001",
		},
		"json and text id": {
			table: "public.outbox", create: `CREATE TABLE outbox (id varchar(40) PRIMARY KEY, routing_key varchar(9), body json, sent_at timestamp, properties json)`,
			insert: `INSERT INTO outbox VALUES ('a "b", \c', 'k', '{"b":1}', NULL, '{"content_type": "application/vnd.x+json"}')`,
			body:   `{"b":1}`, contentType: "application/vnd.x+json", id: `DATABASE.public.outbox.a "b", \c`,
		},
		"message id in properties": {
			table: "outbox", create: `CREATE TABLE outbox (id int PRIMARY KEY, routing_key text, body bytea, sent_at timestamptz, properties jsonb)`,
			insert: `INSERT INTO outbox VALUES (1, 'k', NULL, NULL, '{"message_id": "m1"}')`, id: "m1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bareRig(t, postgrestest.New(t))
			r.db.Exec(tc.create)
			r.options.Names = ParseTable(tc.table, tc.columns)
			migrate(t, r.db, r.options.Names, false)
			r.db.Exec(tc.insert)
			r.start()
			r.eventually("the row is marked", func() bool {
				return r.db.Value(`SELECT count(*) FROM `+r.options.Names.quoted()+` WHERE `+Quote(r.options.Names.Column("sent_at"))+` IS NULL`) == "0"
			})
			all := r.take()
			if len(all) != 1 {
				t.Fatalf("came %d times", len(all))
			}
			d := all[0]
			id := strings.Replace(tc.id, "DATABASE", r.db.Name, 1)
			if string(d.Body) != tc.body || d.ContentType != tc.contentType || d.RoutingKey != "k" || d.MessageId != id {
				t.Errorf("%q %q %q %q", d.Body, d.ContentType, d.RoutingKey, d.MessageId)
			}
		})
	}
}

// TestTrackingIDs: the chain holds each message once, and no more than 64.
func TestTrackingIDs(t *testing.T) {
	t.Parallel()
	list := func(n int) []any {
		var l []any
		for i := range n {
			l = append(l, fmt.Sprint(i))
		}
		return l
	}
	for name, tc := range map[string]struct {
		headers amqp.Table
		column  []any
		want    []any
	}{
		"none":          {nil, nil, []any{"me"}},
		"header":        {amqp.Table{headerTracking: []any{"a"}}, nil, []any{"a", "me"}},
		"column":        {amqp.Table{headerTracking: []any{"a"}}, []any{"b"}, []any{"b", "me"}},
		"there already": {nil, []any{"me", "b"}, []any{"me", "b"}},
		"long":          {nil, list(100), append(list(100)[37:], "me")},
		"not a list":    {amqp.Table{headerTracking: "a"}, nil, []any{"me"}},
	} {
		var column []byte
		if tc.column != nil {
			column, _ = json.Marshal(tc.column)
		}
		h, err := track(tc.headers, column, "me")
		if err != nil || !reflect.DeepEqual(h[headerTracking], any(tc.want)) {
			t.Errorf("%s: %v, %v", name, h, err)
		}
	}
}
