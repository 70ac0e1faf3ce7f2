package app

import (
	"fmt"

	"sidecar/internal/admin"
	"sidecar/internal/broker"
	"sidecar/internal/config"
	"sidecar/internal/outbox"
	"sidecar/internal/topology"
)

func newRelay(sh shared, plan *topology.Plan) sender {
	p := sh.newPublisher("outbox", outboxExchange(sh.cfg, plan))
	r := outbox.New(sh.outboxOptions(p, plan))
	return sender{part{name: "outbox", run: r.Run}, p, func() admin.Check {
		s := r.State()
		c := admin.Check{Name: "outbox", OK: s.Connected && p.Connected(), Detail: s.Problem}
		if s.Connected && !c.OK {
			c.Detail = broker.ErrDisconnected.Error()
		}
		return c
	}}
}

// outboxWarnings returns warnings about a usable connection string.
func outboxWarnings(cfg *config.Config) []string {
	dsn, err := cfg.Outbox.DSN.Value()
	if err != nil || dsn == "" {
		return nil
	}
	host, err := outbox.CheckDSN(dsn)
	if err != nil || host == "" {
		return nil
	}
	return []string{fmt.Sprintf("SIDECAR_OUTBOX_DSN: its password and all messages may travel to %s unencrypted; "+
		"sslmode=verify-full does not allow that", host)}
}
