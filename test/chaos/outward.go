package main

const (
	undisturbed = "-messages=1200 -warm-up=200 -liveness=100 -publish=2000 -batches=5 -outbox=3000 -rollback=300 -faults=0"
	rough       = "-messages=1200 -warm-up=200 -liveness=100 -publish=2000 -batches=5 -outbox=3000 -rollback=300 " +
		"-faults=6 -kinds=broker-kill,cut,broker-stop -rate=1000"
)

// A broker that is suspended while it has messages to return, and connections that end behind confirms.
const (
	frozenReturns = "-messages=1200 -warm-up=200 -liveness=100 -publish=1000 -batches=5 -faults=1 -kinds=freeze-returns"
	cutsBehind    = "-messages=1200 -warm-up=200 -liveness=100 -publish=2000 -batches=5 -faults=2 -kinds=cut-behind"
)

// outward are the deliberate bugs of the publish endpoint and of the relay.
var outward = []mutant{
	{
		// The end of the request must not end the publish: its connection would be cut at every answer.
		name: "answers a POST before the confirm",
		edits: []edit{
			{"internal/publish/send.go", "			err = confirmed()\n", "			go func() { _ = confirmed() }()\n"},
			{"internal/publish/send.go", "].Begin(ctx, ", "].Begin(context.WithoutCancel(ctx), "},
		},
		caught: []string{"I1"}, flags: flags(rough),
	},
	{
		name: "answers a POST of what returned with 204",
		edits: []edit{
			{"internal/publish/send.go", "m.err = err; err == nil {\n			span.Produced",
				"m.err = err; err == nil || errors.Is(err, broker.ErrUnroutable) {\n			span.Produced"},
			{"internal/publish/send.go", "	\"context\"\n", "	\"context\"\n	\"errors\"\n"},
		},
		caught: []string{"I12"}, flags: flags(undisturbed),
	},
	{
		name: "has no room for returns behind those of messages that it gave up",
		edits: []edit{
			{"internal/broker/receipt.go", "	c.retired.Store(true)\n", ""},
			{"internal/broker/returnmatch.go", "	if unmatched > 0 {\n",
				"	if len(c.back) >= streamWindow {\n		return\n	}\n	if unmatched > 0 {\n"},
		},
		caught: []string{"I12"}, flags: flags(frozenReturns),
	},
	{
		name: "takes the end of a connection for a return",
		edits: []edit{{
			"internal/broker/returnmatch.go", "	return r.back\n",
			"	if c.closed() {\n		return &ReturnedError{Code: 312, Text: \"NO_ROUTE\"}\n	}\n	return r.back\n",
		}},
		caught: []string{"I12"}, flags: flags(cutsBehind),
	},
	{
		name: "relays rows behind the last one that was sent",
		edits: []edit{{
			"internal/outbox/sql.go", "FROM {table} WHERE ` + unsent + ` AND ` + t.due() + ` AND ` + others",
			"FROM {table} WHERE {id} > (SELECT coalesce(max({id}), 0) FROM {table} WHERE {sent_at} IS NOT NULL) AND ` + " +
				"unsent + ` AND ` + t.due() + ` AND ` + others",
		}},
		caught: []string{"I13"}, flags: flags(undisturbed),
	},
	{
		name: "marks rows as sent without a result",
		edits: []edit{{"internal/outbox/publish.go", "which was of another message\n		return unknown",
			"which was of another message\n		return sent"}},
		caught: []string{"I1", "I13"}, flags: flags(rough),
	},
	{
		name: "marks rows as sent before the confirm",
		edits: []edit{{"internal/outbox/publish.go", "	p.sent(x)\n	p.flights <- x",
			"	p.record(x, nil)"}},
		caught: []string{"I13"}, flags: flags(undisturbed),
	},
	{
		name:   "claims rows that another relay has",
		edits:  []edit{{"internal/outbox/sql.go", " LIMIT $1::int FOR NO KEY UPDATE SKIP LOCKED`", " LIMIT $1::int`"}},
		caught: []string{"I5", "I6"}, flags: flags(undisturbed),
	},
}
