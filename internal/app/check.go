package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/config"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// checkTimeout bounds a whole check: dialling every URL once and asking for every object.
const checkTimeout = 30 * time.Second

// Each ends a check that found something: as it is, a retried or parked message might be lost.
var (
	errFindings = errors.New("the topology does not fit")
	ErrMissing  = errors.New("objects are missing: `sidecar run` makes them")
)

// dial opens the session of a command, which logs nothing.
func dial(ctx context.Context, cfg *config.Config, use string, build Build) (*broker.Session, error) {
	telemetry.AdoptLibraries(slog.New(slog.DiscardHandler))
	s, err := broker.NewDialer(brokerOptions(cfg, use, build)).Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	return s, nil
}

// CheckResult is what a check has found, as its JSON.
type CheckResult struct {
	Service  string            `json:"service"`
	Name     string            `json:"subscription,omitempty"` // empty: it has none
	Broker   []string          `json:"broker"`                 // host and port of each URL
	Vhost    string            `json:"vhost"`
	User     string            `json:"user"`        // empty: that of the client certificate
	Queue    string            `json:"queue"`       // empty: nothing is consumed
	Fits     bool              `json:"fits"`        // no finding is a problem
	Made     bool              `json:"made_by_run"` // run makes what is missing, and nothing else is a problem
	Bindings sight             `json:"bindings"`
	Policies sight             `json:"policies"`
	Findings []declare.Finding `json:"findings"`
	Warnings []string          `json:"warnings"`

	notes []string // for people: what the fields above say too
	ok    string
}

// sight says whether the check could see something.
type sight string

const (
	seen    sight = "seen"
	notSeen sight = "not seen"
)

// Check connects, checks whether the broker would keep every retried and parked message, and prints findings with their
// fixes to w, for people or as one JSON object. It changes nothing. If run in mode declare would make all that is
// missing, and nothing else is wrong, the error is ErrMissing. On an error that is no result no JSON is printed. paint
// colours the word that begins a finding.
func Check(ctx context.Context, cfg *config.Config, w io.Writer, asJSON bool, paint func(string) string) error {
	plan, err := newPlan(cfg)
	if err != nil {
		return err
	}
	r := &CheckResult{
		Service: cfg.Service.Name, Name: cfg.Subscription, Bindings: notSeen, Policies: notSeen,
		Findings: []declare.Finding{}, Warnings: append([]string{}, warnings(cfg, plan, unasked(plan))...),
	}
	first := cfg.Subscription == "" || cfg.Subscription == cfg.Service.Subscriptions[0]
	r.Broker, r.Vhost, r.User = broker.NewDialer(brokerOptions(cfg, "check", Build{})).Where()
	err = r.check(ctx, cfg, plan)
	switch {
	case !asJSON:
		r.print(w, first, paint)
	case err == nil:
		err = json.NewEncoder(w).Encode(r)
	}
	switch {
	case err != nil || r.Fits:
		return err
	case r.Made:
		return ErrMissing
	}
	return fmt.Errorf("%w: problems found: %d", errFindings, len(declare.Blocking(r.Findings)))
}

func (r *CheckResult) check(ctx context.Context, cfg *config.Config, plan *topology.Plan) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	s, err := dial(ctx, cfg, "check", Build{})
	if err != nil {
		return err
	}
	defer s.Close()
	if cfg.Service.Consume == config.ConsumeOff {
		r.Fits, r.ok = true, "connected to the broker; nothing is consumed, so no topology is needed"
		return nil
	}
	r.Queue = plan.Queue
	report, err := declare.Inspect(ctx, s, plan, modeOf(cfg))
	if err != nil {
		return err
	}
	r.Warnings = append(r.Warnings[:0], warnings(cfg, report.Plan, asked(&report))...)
	findings := unreadable(report.Findings, modeOf(cfg))
	if cfg.AMQP.ManagementURL.IsSet() {
		if findings, err = r.readManagement(ctx, cfg, report.Plan, s, findings); err != nil {
			return err
		}
	}
	permissions, err := declare.Preflight(ctx, s, plan, modeOf(cfg))
	if errors.Is(err, broker.ErrBlocked) {
		s.Kill() // it would not answer a goodbye either
		return errBlocked
	}
	if err != nil {
		return err
	}
	findings = slices.DeleteFunc(findings, func(f declare.Finding) bool { // run cannot declare it
		return f.Problem == declare.ProblemMissing && slices.ContainsFunc(permissions, func(p declare.Finding) bool {
			return p.About("declaring "+f.Object) || p.About(f.Object)
		})
	})
	r.Findings = append(append(r.Findings, findings...), permissions...)
	blocking := declare.Blocking(r.Findings)
	r.Fits = len(blocking) == 0
	other := func(f declare.Finding) bool { return f.Problem != declare.ProblemMissing || !f.Declared }
	r.Made = !r.Fits && modeOf(cfg) == topology.ModeDeclare && !slices.ContainsFunc(blocking, other)
	r.conclude(cfg, report.Plan)
	return nil
}

// conclude adds the notes and the last line, which describe what was seen.
func (r *CheckResult) conclude(cfg *config.Config, plan *topology.Plan) {
	if r.Bindings == notSeen {
		r.notes = append(r.notes, "bindings and policies cannot be seen over AMQP, but with SIDECAR_MANAGEMENT_URL; "+
			withoutBindings(cfg, plan))
	} else if r.Policies == notSeen {
		r.notes = append(r.notes, "the broker does not report the policies of every queue: it has no statistics of it, or "+
			"not yet")
	}
	kept := "parked ones go to " + plan.Park.Queue
	if plan.Park.Queue == "" {
		kept = "those that have used up their retries are discarded"
	}
	fits := plan.Queue + " fits: retried messages wait and return, " + kept
	switch {
	case !r.Fits:
		return
	case r.Bindings == notSeen && modeOf(cfg) != topology.ModeDeclare: // a missing binding can lose every retry
		r.notes = append(r.notes, plan.Queue+": its objects fit; bindings: not checked (AMQP does not show them); "+
			"policies: not checked")
		return
	case r.Bindings == notSeen:
		fits += "; sidecar run declares its bindings; policies not seen"
	case r.Policies == notSeen:
		fits += "; policies not seen"
	}
	r.ok = fits
}

// errBlocked ends a check that the broker does not answer.
var errBlocked = errors.New("the broker blocks publishers (memory or disk alarm), so publishing cannot be tried: " +
	"check again when the alarm is over")

// unreadable makes notes of findings about objects that the user may not read, if the sidecar does not check them
// either.
func unreadable(findings []declare.Finding, mode topology.Mode) []declare.Finding {
	for i := range findings {
		if f := &findings[i]; f.Problem == declare.ProblemPermission && mode == topology.ModeNone {
			f.Judgement, f.Fix = topology.Harmless, ""
			f.Reason = "it cannot be seen with this user's permissions, which are enough to run with " +
				"SIDECAR_TOPOLOGY_MODE=none"
		}
	}
	return findings
}

// asked are the warnings of the plan of r. If the service's queue is missing, they say so; if the broker has refused to
// show it, its type is not known.
func asked(r *declare.Report) []string {
	for _, f := range r.Blocking() {
		switch {
		case !f.About(r.Plan.OwnQueue().Title()):
		case f.Problem == declare.ProblemMissing:
			return unasked(r.Plan)
		default:
			certain, _ := r.Plan.WarningsUnasked()
			return certain
		}
	}
	return r.Plan.Warnings()
}

// unasked are the warnings of a plan that no broker was asked about.
func unasked(plan *topology.Plan) []string {
	certain, planned := plan.WarningsUnasked()
	return append(certain, planned...)
}

// warnings are about what works with this configuration, topology and database, and may surprise: a sentence each.
// ofPlan are those of the plan. Those of a subscription with a name are about its topology only, and those of all
// together about the rest.
func warnings(cfg *config.Config, plan *topology.Plan, ofPlan []string) []string {
	switch {
	case cfg.Subscription != "":
		return topologyWarnings(cfg, plan, ofPlan)
	case cfg.Service.Consume == config.ConsumeOff || len(cfg.Subscriptions) > 0:
		return slices.Concat(cfg.Warnings(), outboxWarnings(cfg))
	}
	return slices.Concat(cfg.Warnings(), topologyWarnings(cfg, plan, ofPlan), outboxWarnings(cfg))
}

func topologyWarnings(cfg *config.Config, plan *topology.Plan, ofPlan []string) []string {
	var unchecked []string
	if modeOf(cfg) == topology.ModeNone {
		unchecked = []string{"SIDECAR_TOPOLOGY_MODE=none: whether retried and parked messages are kept is not checked"}
	}
	return slices.Concat(ofPlan, unchecked, unseenWay(cfg, plan), unusedRoutes(cfg, plan))
}

// unseenWay warns of a binding that is not declared here and cannot be seen over AMQP.
func unseenWay(cfg *config.Config, plan *topology.Plan) []string {
	back := plan.WayBack()
	if back == nil || modeOf(cfg) == topology.ModeDeclare {
		return nil
	}
	return []string{fmt.Sprintf("retries return by a binding of %s to exchange %s that matches the key %s; whether it "+
		"exists cannot be checked, and without it classic queues lose every retried message: "+
		"SIDECAR_TOPOLOGY_MODE=declare makes it", back.Queue, back.Exchange, back.Key)}
}

// withoutBindings says what a missing binding does.
func withoutBindings(cfg *config.Config, plan *topology.Plan) string {
	rejects := slices.ContainsFunc(plan.Waits, func(w topology.WaitPath) bool { return w.By == topology.ByReject })
	returns, lost := plan.WayBack() != nil, "loses"
	if plan.Quorum { // the broker keeps what it cannot route, and tries it again after three to six minutes
		lost = "holds up"
	}
	switch {
	case returns && modeOf(cfg) != topology.ModeDeclare:
		return "the binding by which retries return cannot be tested by publishing"
	case rejects || returns:
		return fmt.Sprintf("sidecar run declares bindings at every connect and every %d seconds; one deleted in between %s "+
			"what is retried until then", declare.DefaultEvery/time.Second, lost)
	}
	return "what is published is mandatory: without a binding it is returned, and the original stays"
}
