package app

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/config"
	"sidecar/internal/dispatch"
	"sidecar/internal/flow"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// Question asks for the verdict on a message.
type Question struct {
	Status      int
	Failure     string // one of Failures, instead of Status
	RetryCount  int
	Disposition string        // one of Dispositions, or empty
	Body        string        // of the answer
	RetryAfter  time.Duration // negative: none
	RoutingKey  string        // the path is explained if one of these four is set
	Type        string
	Exchange    string
	Headers     amqp.Table
}

// Explanation is the verdict on a message, as its JSON.
type Explanation struct {
	Status     int      `json:"status,omitempty"`
	Failure    string   `json:"failure,omitempty"`
	Retry      int      `json:"retry"`
	MaxRetries int      `json:"max_retries"`
	Action     string   `json:"action"`
	Reason     string   `json:"reason"`
	Steps      []string `json:"steps"` // why, and how the message leaves
}

// Text is e for people; paint marks the action.
func (e *Explanation) Text(paint func(string) string) string {
	answer := cmp.Or(e.Failure, fmt.Sprintf("status %d", e.Status))
	return fmt.Sprintf("%s at retry %d of %d: %s (reason %s)\n  %s",
		answer, e.Retry, e.MaxRetries, paint(e.Action), e.Reason, strings.Join(e.Steps, "\n  "))
}

// Explain answers with the verdict, why, and how it leaves.
func Explain(cfg *config.Config, q Question) (*Explanation, error) {
	p, err := newPlan(cfg)
	if err != nil {
		return nil, err
	}
	m := &message.Message{
		Queue: p.Queue, RetryCount: q.RetryCount, MaxRetries: p.MaxRetries,
		Exchange: cmp.Or(q.Exchange, mainExchange(cfg, p)), RoutingKey: q.RoutingKey, Type: q.Type, Headers: q.Headers,
	}
	where, err := q.route(cfg, m)
	if err != nil {
		return nil, err
	}
	o, err := q.outcome(cfg)
	if err != nil {
		return nil, err
	}
	s := p.Settlement(m, newPolicy(cfg).Decide(m, o))

	e := &Explanation{
		Status: q.Status, Failure: q.Failure, Retry: q.RetryCount, MaxRetries: p.MaxRetries,
		Action: s.Verdict.Action.String(), Reason: s.Verdict.Reason.String(), Steps: where,
	}
	if o.Detail != "" {
		e.Steps = append(e.Steps, "detail: "+o.Detail)
	}
	if o.Err != nil {
		e.Steps = append(e.Steps, "error: "+o.Err.Error())
	}
	e.Steps = append(append(e.Steps, explainVerdict(s.Verdict, m)), explainSettlement(&s, p)...)
	e.Steps = append(e.Steps, explainBatch(cfg.Window.BatchSize, s.Verdict)...)
	if all := flow.AnswerToAll(&o, cfg.Retry.ParkOnStatus); all != "" {
		e.Steps = append(e.Steps, all)
	}
	return e, nil
}

// explainBatch says what the same answer means for a POST of several messages; nothing where there is none.
func explainBatch(size int, v message.Verdict) []string {
	what := "they are POSTed again at once, each alone, and only those attempts count"
	switch {
	case size == 1, v.Reason == message.ReasonNoRoute, v.Reason == message.ReasonTooLarge:
		return nil
	case v.Action == message.Ack, v.Action == message.Requeue, v.Action == message.Release:
		what = "the same for each of them"
	}
	return []string{fmt.Sprintf("as the answer to several messages (up to %d in one POST): %s", size, what)}
}

// SetHeader sets a header of the message, from NAME=VALUE.
func (q *Question) SetHeader(item string) error {
	name, value, ok := strings.Cut(item, "=")
	if !ok || name == "" {
		return errors.New("want NAME=VALUE")
	}
	if q.Headers == nil {
		q.Headers = amqp.Table{}
	}
	q.Headers[name] = value
	return nil
}

// AsksForPath reports whether it is asked where the message is POSTed.
func (q *Question) AsksForPath() bool {
	return q.RoutingKey+q.Type+q.Exchange != "" || len(q.Headers) > 0
}

// route says where m is POSTed, if that was asked. If it is not POSTed, the question becomes what happens then.
func (q *Question) route(cfg *config.Config, m *message.Message) ([]string, error) {
	target, err := dispatch.New(dispatch.Options{URL: cfg.App.URL, Routes: cfg.App.Routes,
		CloudEvents: cfg.Request.CloudEvents == config.CloudEventsBinary})
	if err != nil || !q.AsksForPath() {
		return nil, err
	}
	switch n, url := target.Route(m); {
	case n > 0:
		return []string{fmt.Sprintf("POST to %s, by the route %s", url, cfg.App.Routes[n-1])}, nil
	case cfg.App.RoutesElse == config.RouteApp, len(cfg.App.Routes) == 0:
		return []string{fmt.Sprintf("POST to %s, because no route matches", shownURL(cfg.App.URL))}, nil
	}
	q.Status, q.Failure = 0, "no_route"
	return nil, nil
}

func (q Question) outcome(cfg *config.Config) (message.Outcome, error) {
	o := message.Outcome{
		Status: q.Status, Failure: failures[q.Failure], RetryAfter: -1, At: time.Now(),
		Disposition: message.Disposition(1 + slices.Index(message.Dispositions, q.Disposition)), // #nosec G115 -- a handful
	}
	if q.RetryAfter >= 0 {
		o.RetryAfter = min(q.RetryAfter, cfg.Retry.RetryAfterMax)
	}
	if cfg.App.ResponseDialect == config.DialectDapr {
		dispatch.DaprAnswer([]byte(q.Body), &o)
	} else if q.Body != "" {
		return o, errors.New("a body says nothing while SIDECAR_RESPONSE_DIALECT is off")
	}
	return o, nil
}

var failures = map[string]message.Failure{
	"refused": message.FailureRefused, "timeout": message.FailureTimeout, "reset": message.FailureReset,
	"malformed": message.FailureMalformed, "too_large": message.FailureTooLarge, "no_route": message.FailureNoRoute,
}

// Words of a Question.
var (
	Failures     = slices.Sorted(maps.Keys(failures))
	Dispositions = slices.Sorted(slices.Values(message.Dispositions))
)

var verdictTexts = map[message.Action]string{
	message.Ack:     "the app took the message: it leaves the queue",
	message.Discard: "there is no dead-letter queue: the message is dropped, and counted",
	message.Park:    "retrying would not help: the message is parked at once",
	message.Requeue: "not a failed attempt: the retry count stays as it is",
	message.Release: "this says nothing about the message: it goes back unharmed and uncounted, and consumption pauses " +
		"until the app is back",
}

func explainVerdict(v message.Verdict, m *message.Message) string {
	switch {
	case v.Reason == message.ReasonNoRoute:
		return "not POSTed: no route matches, and SIDECAR_ROUTES_ELSE decides"
	case v.Action == message.Retry:
		return fmt.Sprintf("a failed attempt: the next delivery is attempt %d with Amqp-Retry-Count %d", m.RetryCount+2,
			m.RetryCount+1)
	case v.Reason == message.ReasonMaxRetries:
		return fmt.Sprintf("attempt %d was the last one: all %d retries are used up", m.RetryCount+1, m.MaxRetries)
	case v.Action == message.Discard && v.Cause.Disposition == message.DispositionDiscard:
		return "the app asked for it: the message is gone, and counted"
	}
	return verdictTexts[v.Action]
}

// explainWaits says in which queues the settled message waits for its retry.
func explainWaits(s *topology.Settlement, p *topology.Plan) []string {
	var lines []string
	for _, w := range p.Waits {
		what := fmt.Sprintf("waits %s in %s, then returns to %s", w.Delay, w.Queue, p.Queue)
		switch {
		case s.Publish != nil && w.Exchange == s.Publish.Exchange && w.Key == s.Publish.Key:
			lines = append(lines, what)
		case s.Final == topology.FinalReject && w.By == topology.ByReject:
			lines = append(lines, "rejected: "+what)
		}
	}
	return lines
}

func explainSettlement(s *topology.Settlement, p *topology.Plan) []string {
	var lines []string
	if s.Hold > 0 || s.Jitter > 0 {
		lines = append(lines, fmt.Sprintf("is delayed %s to %s here, holding a prefetch slot but no worker", s.Hold,
			s.Hold+s.Jitter))
	}
	if s.Publish != nil {
		lines = append(lines, fmt.Sprintf("published to %s, confirmed by the broker, then acked",
			place(s.Publish.Exchange, s.Publish.Key)))
	}
	lines = append(lines, explainWaits(s, p)...)
	if s.Verdict.Action == message.Retry && len(lines) > 0 && !p.InPlace {
		lines = append(lines, "no broker was asked: so it is with the queues of sidecar plan, "+p.Variant())
	}
	switch {
	case s.Final == topology.FinalDelay:
		lines = append(lines, fmt.Sprintf("rejected with requeue: %s delays it %s", p.Queue, p.DelaysText()))
	case s.Final == topology.FinalRequeue && p.InPlace:
		lines = append(lines, "keeps its place in "+p.Queue+", and messages with its key wait behind it")
	case s.Final == topology.FinalRequeue:
		lines = append(lines, "requeued by basic.nack: returns to the head of "+p.Queue)
	case s.Final == topology.FinalAck && s.Publish == nil:
		lines = append(lines, "acked")
	}
	if pause := max(s.Pause, s.Verdict.Pause); pause > 0 {
		lines = append(lines, fmt.Sprintf("this replica takes nothing for %s, as the app asked", pause))
	}
	return lines
}

func place(exchange, key string) string {
	if exchange == "" {
		return fmt.Sprintf("queue %s", key)
	}
	return fmt.Sprintf("exchange %s with key %q", exchange, key)
}
