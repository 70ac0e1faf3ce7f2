package app

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/config"
	"sidecar/internal/management"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// readManagement adds to the findings what only the management API shows, and judges the queues that policies change
// anew.
func (r *CheckResult) readManagement(ctx context.Context, cfg *config.Config, plan *topology.Plan, major int,
	findings []declare.Finding) ([]declare.Finding, error) {
	address, user, password, err := cfg.AMQP.Management()
	if err != nil {
		return nil, err
	}
	o := management.Options{
		URL: address, User: user, Password: password, CAFile: cfg.AMQP.TLSCAFile, Vhost: vhost(cfg),
	}
	s, err := management.Read(ctx, o, plan)
	if err != nil {
		return nil, err
	}
	r.Bindings, r.Policies = seen, seen
	for _, q := range s.Queues {
		if q.Settings == nil {
			r.Policies = notSeen
		}
	}
	way := unseenWay(cfg, plan)
	r.Warnings = slices.DeleteFunc(r.Warnings, func(w string) bool { return slices.Contains(way, w) })
	findings = withPolicies(s, plan, major, findings)
	for _, b := range s.MissingBindings(plan) {
		findings = append(findings, declare.MissingBinding(b, s.Instead(b), modeOf(cfg)))
	}
	return append(findings, leftovers(s, o.Vhost)...), nil
}

// withPolicies judges queues that policies change by what is in effect, in place of what they were declared with.
func withPolicies(s *management.Seen, plan *topology.Plan, major int, findings []declare.Finding) []declare.Finding {
	changed, titles := topology.Found{Queues: map[string]amqp.Table{}, Major: major}, map[string]bool{}
	for name, q := range s.Queues {
		if q.Changed() {
			changed.Queues[name], titles[(&topology.Queue{Name: name}).Title()] = q.Properties(), true
		}
	}
	findings = slices.DeleteFunc(findings, func(f declare.Finding) bool {
		return f.Problem == declare.ProblemDrift && titles[f.Object]
	})
	for _, d := range plan.Compare(changed) {
		q := s.Queues[d.Name]
		by := q.PolicyOf(d.Property)
		if unseen := notAdapted(plan, &d, changed.Queues[d.Name]); unseen != "" && by != "" {
			d.Judgement, d.Reason = min(d.Judgement, topology.Weaker), unseen
		}
		f := declare.Differs(d)
		if by != "" {
			f.Found += ", by " + by
			if f.Judgement != topology.Harmless {
				f.Fix = "change " + by
			}
		}
		findings = append(findings, f)
	}
	return findings
}

// notAdapted says what a difference comes to that sidecar run adapts to when it sees it, and does not because a policy
// makes it; "" if it does not adapt to it anyway.
func notAdapted(plan *topology.Plan, d *topology.Difference, found amqp.Table) string {
	rejects := slices.ContainsFunc(plan.Waits, func(w topology.WaitPath) bool { return w.ByReject })
	own, full := d.Name == plan.Queue, found[topology.ArgOverflow] != "drop-head" && found[topology.ArgOverflow] != nil
	waits := slices.ContainsFunc(plan.Waits, func(w topology.WaitPath) bool { return w.ByReject && w.Queue == d.Name })
	switch {
	case own && d.Property == topology.ArgDeliveryLimit && d.Judgement != topology.Harmless:
		return fmt.Sprintf("after %v deliveries that ended without an answer or with 425 the broker takes the message away",
			d.Found)
	case own && rejects && plan.Quorum && d.Property == topology.ArgOverflow:
		return "rejected messages can be lost when the broker is killed: without reject-publish it dead-letters at most once"
	case waits && full && !plan.Quorum && (d.Property == "x-max-length" || d.Property == "x-max-length-bytes"):
		return "a message that is rejected for a retry while the queue is full is lost"
	}
	return ""
}

// leftovers are notes about queues that return messages to the service's queue and that the plan does not name.
func leftovers(s *management.Seen, vhost string) []declare.Finding {
	var all []declare.Finding
	for _, q := range s.Leftover {
		all = append(all, declare.Finding{
			Judgement: topology.Harmless, Object: (&topology.Queue{Name: q.Name}).Title(), Problem: declare.ProblemLeftover,
			Found: fmt.Sprintf("%d messages", q.Messages),
			Reason: "its messages return to the service's queue, and the configuration does not name it: an earlier " +
				"SIDECAR_RETRY_DELAY has made it, or another program uses it",
			Fix: "leave it while it holds messages; if nothing publishes to it: " + deleteQueue(vhost, q.Name),
		})
	}
	if s.Unread > 0 {
		all = append(all, declare.Finding{
			Judgement: topology.Harmless, Object: fmt.Sprintf("virtual host %q", vhost), Problem: declare.ProblemUnseen,
			Found:  fmt.Sprintf("%d more queues", s.Unread),
			Reason: "they were not searched for retry queues of an earlier delay",
		})
	}
	return all
}

// deleteQueue is the command that deletes a queue, unless it holds messages or has a consumer.
func deleteQueue(vhost, name string) string {
	return fmt.Sprintf("rabbitmqctl delete_queue -p %s %s --if-empty --if-unused", quoted(vhost), quoted(name))
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:][A-Za-z0-9_./:-]*$`)

// quoted is a word for a shell.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
