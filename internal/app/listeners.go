package app

import (
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/admin"
	"sidecar/internal/admin/dlq"
	"sidecar/internal/budget"
	"sidecar/internal/config"
	"sidecar/internal/deadletter"
)

// listeners builds the listeners for operators.
func (a *App) listeners(subscribed []*config.Config) error {
	owners, err := ownersOf(subscribed)
	if err != nil {
		return err
	}
	dead := dlq.Options{Service: a.cfg.Service.Name, Logger: a.log}
	dead.Queues, err = newDeadLetters(a.shared, owners, "api", a.registry) // the log has the client
	if err != nil && !errors.Is(err, deadletter.ErrNoQueue) {
		return err
	}
	if len(owners) == 0 {
		owners = []deadletter.Owner{{Plan: a.plan}}
	}
	views := make([]admin.Topology, len(owners))
	for i, o := range owners {
		views[i] = topologyView(o.Name, o.Plan)
	}
	l := &a.cfg.Listen
	a.admin = admin.New(admin.Options{
		AdminAddr: l.AdminAddr, ControlAddr: l.ControlAddr, Grace: a.cfg.Process.ShutdownGrace,
		Token: listenerToken(l.ControlToken, a.log), ReadToken: listenerToken(l.ControlReadToken, a.log),
		State: a, Topologies: views, DeadLetters: dlq.New(dead),
		Memory: a.budget.Account(budget.Requests), Gatherer: a.registry, Logger: a.log,
	})
	return nil
}

// ownersOf returns the names and the plans of subscriptions.
func ownersOf(subscribed []*config.Config) (owners []deadletter.Owner, err error) {
	for _, cfg := range subscribed {
		plan, err := newPlan(cfg)
		if err != nil {
			return nil, err
		}
		owners = append(owners, deadletter.Owner{Name: cfg.Subscription, Plan: plan})
	}
	return owners, nil
}

// DeadLetters builds the dead-letter queues of the configured topologies for a command that user runs. It opens no
// connection and logs nothing. Topologies without such a queue are ErrConfig and deadletter.ErrNoQueue.
func DeadLetters(cfg *config.Config, build Build, user string) (deadletter.Queues, error) {
	subscribed := cfg.Subscriptions
	if len(subscribed) == 0 {
		subscribed = []*config.Config{cfg}
	}
	owners, err := ownersOf(subscribed)
	if err != nil {
		return nil, err
	}
	memory := int64(cfg.Window.Memory)
	if MemoryLimit() > 0 { // perhaps of a container with a sidecar, whose budget leaves a quarter for everything else
		memory /= 8
	}
	sh := shared{cfg: cfg, build: build, budget: budget.New(memory), spool: newSpool(cfg)}
	q, err := newDeadLetters(sh, owners, user, nil)
	if errors.Is(err, deadletter.ErrNoQueue) {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return q, err
}

// newDeadLetters connects without log or metrics: every operation makes a connection of its own, and returns its error.
// Messages record that user acted, on this host.
func newDeadLetters(sh shared, owners []deadletter.Owner, user string, r prometheus.Registerer) (deadletter.Queues, error) {
	o := brokerOptions(sh.cfg, "dlq", sh.build)
	o.Memory, o.Spool = sh.budget.Account(budget.DeadLetters), sh.spool
	if host, err := os.Hostname(); err == nil {
		user += "@" + host
	}
	return deadletter.NewQueues(deadletter.Options{Broker: o, By: user, Logger: sh.log, Registerer: r}, owners)
}
