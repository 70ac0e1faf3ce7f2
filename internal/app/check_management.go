package app

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/config"
	"sidecar/internal/management"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// readManagement adds to the findings what only the management API shows, and judges the queues that policies change
// anew.
func (r *CheckResult) readManagement(ctx context.Context, cfg *config.Config, plan *topology.Plan, link declare.Session,
	findings []declare.Finding) ([]declare.Finding, error) {
	address, user, password, err := cfg.AMQP.Management()
	if err != nil {
		return nil, err
	}
	tls, err := broker.TLSConfig(broker.TLSOptions{CAFile: cfg.AMQP.TLSCAFile}, "")
	if err != nil {
		return nil, fmt.Errorf("management API: %w", err)
	}
	o := management.Options{URL: address, User: user, Password: password, TLS: tls, Vhost: vhost(cfg)}
	s, err := management.Read(ctx, o, plan)
	if err != nil {
		return nil, fmt.Errorf("%w: check SIDECAR_MANAGEMENT_URL (port 15672, plugin rabbitmq_management), or unset it", err)
	}
	r.Bindings, r.Policies = seen, seen
	if plan.DelaysItself() {
		r.notes = append(r.notes, fmt.Sprintf("messages that wait in %s for a retry: %s", plan.Queue, s.Waiting))
	}
	for _, q := range s.Queues {
		if q.Settings == nil {
			r.Policies = notSeen
		}
	}
	way := unseenWay(cfg, plan)
	r.Warnings = slices.DeleteFunc(r.Warnings, func(w string) bool { return slices.Contains(way, w) })
	findings = withPolicies(s, plan, link.Major(), findings)
	for _, b := range s.MissingBindings(plan) {
		findings = append(findings, declare.MissingBinding(b, s.Instead(b), modeOf(cfg)))
	}
	for i := range s.Leftover { // the API's figures of quorum queues are some seconds late
		q := &s.Leftover[i]
		ready, err := declare.Ready(ctx, link, q.Name)
		if err != nil {
			return nil, fmt.Errorf("count the messages of %s: %w", topology.QueueTitle(q.Name), err)
		}
		q.Messages = max(q.Messages, ready)
	}
	return append(findings, leftovers(s, o.Vhost)...), nil
}

// withPolicies judges queues that policies change by what is in effect, in place of what they were declared with.
func withPolicies(s *management.Seen, plan *topology.Plan, major int, findings []declare.Finding) []declare.Finding {
	changed := topology.Found{Queues: map[string]amqp.Table{}, Major: major}
	policies := map[string]map[string]string{} // by title and argument
	for name, q := range s.Queues {
		delays := plan.DelaysItself() && name == plan.Queue && q.Settings != nil // whether a policy says so is known
		if all, by := q.Effective(); len(by) > 0 || delays {
			changed.Queues[name], policies[topology.QueueTitle(name)] = all, by
		}
	}
	findings = slices.DeleteFunc(findings, func(f declare.Finding) bool {
		return f.Problem == declare.ProblemDrift && policies[f.Object] != nil
	})
	for _, d := range plan.Compare(changed) {
		by := policies[d.Object][d.Property]
		judgePolicy(plan, &d, by, changed.Queues[d.Name])
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

// judgePolicy judges a difference that the policy by makes; "" is none.
func judgePolicy(plan *topology.Plan, d *topology.Difference, by string, found amqp.Table) {
	switch risk := policyRisk(plan, d, found); {
	case risk != "" && by != "":
		d.Judgement, d.Reason = min(d.Judgement, topology.Weaker), risk
	case !plan.DelaysItself() || d.Name != plan.Queue:
	case d.Property == topology.ArgRetryType && d.Found == nil:
		d.Judgement, d.Reason = topology.Breaks, "no policy delays them: rejected messages are delivered again at once"
	case by != "" && (d.Property == topology.ArgRetryMin || d.Property == topology.ArgRetryMax):
		d.Reason = "retries wait that long" // in the queue: sidecar run does not see the policy
	}
}

// policyRisk says what can happen by a difference that sidecar run adapts to, but does not see where a policy makes it;
// "" for one that it does not adapt to anyway.
func policyRisk(plan *topology.Plan, d *topology.Difference, found amqp.Table) string {
	rejects := slices.ContainsFunc(plan.Waits, func(w topology.WaitPath) bool { return w.By == topology.ByReject })
	own, full := d.Name == plan.Queue, !slices.Contains([]any{nil, "drop-head"}, found[topology.ArgOverflow])
	limits := own && d.Property == topology.ArgDeliveryLimit && d.Judgement != topology.Harmless
	waits := slices.ContainsFunc(plan.Waits, func(w topology.WaitPath) bool {
		return w.By == topology.ByReject && w.Queue == d.Name
	})
	switch {
	case limits && plan.DelaysItself():
		return fmt.Sprintf("after %v failed attempts, of all replicas, and lost connections the broker takes the message "+
			"away", d.Found)
	case limits:
		return fmt.Sprintf("after %v deliveries that ended without an answer or with 425 the broker takes the message away",
			d.Found)
	case own && rejects && plan.Quorum && d.Property == topology.ArgOverflow:
		return "rejected messages can be lost when the broker is killed: without reject-publish it dead-letters at most once"
	case waits && full && slices.Contains([]string{"x-max-length", "x-max-length-bytes"}, d.Property):
		if plan.Quorum {
			return "a message that is rejected for a retry while the queue is full can stay in the service's queue for " +
				"minutes, neither ready nor unacked"
		}
		return "a message that is rejected for a retry while the queue is full is lost"
	}
	return ""
}

// leftovers are notes about queues that return messages to the service's queue and that the plan does not name.
func leftovers(s *management.Seen, vhost string) []declare.Finding {
	var all []declare.Finding
	for _, q := range s.Leftover {
		fix := "leave it while it holds messages"
		remove := fmt.Sprintf("; if nothing publishes to it: rabbitmqctl delete_queue -p %s %s", quoted(vhost),
			quoted(q.Name))
		switch {
		case q.Type != topology.TypeQuorum:
			fix += remove + " --if-empty --if-unused"
		case q.Messages == 0: // it refuses these flags
			fix += remove + ", which deletes what is in it"
		}
		all = append(all, declare.Finding{
			Judgement: topology.Harmless, Object: topology.QueueTitle(q.Name), Problem: declare.ProblemLeftover,
			Found: fmt.Sprintf("%d messages", q.Messages),
			Reason: "its messages return to the service's queue, and the configuration does not name it: an earlier " +
				"SIDECAR_RETRY_DELAY or SIDECAR_TOPOLOGY has made it, or another program uses it",
			Fix: fix,
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

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:][A-Za-z0-9_./:-]*$`)

// quoted is a word for a shell.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
