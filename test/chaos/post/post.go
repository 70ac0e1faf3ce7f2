// Package post is the client of the sidecar's publish listener in a chaos run, in a process of its own. It POSTs every
// message once, alone or in a batch, and records the answer. It repeats a request that was answered with 503 or could
// not be sent, and no other: an unknown outcome stays unknown.
package post

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/plan"
	"sidecar/test/chaos/source"
)

const (
	workers = 4
	largest = 40 // messages of one batch

	// answerWithin is longer than the sidecar may take, and than it may be suspended.
	answerWithin = 45 * time.Second
)

// Aliases of exchanges that a run's sidecar has, and an unknown one.
const (
	Main    = "default"
	Lonely  = "lonely"  // an exchange without bindings
	Gone    = "gone"    // no exchange at all
	Unknown = "unknown" // no alias
)

// MaxBody is the largest body in bytes that the sidecar is to take.
const MaxBody = plan.LargeBody + 64<<10

// Options of a client.
type Options struct {
	Dir    string
	URL    string // of the listener
	Token  string
	Run    ledger.Run
	Canary string
	Rate   int // messages per second
}

// message is one to send, and what is known of it.
type message struct {
	record  ledger.Requested
	alias   string
	key     string
	body    []byte
	headers map[string]any
}

type client struct {
	o    Options
	log  *ledger.Writer
	gate *source.Gate
	http *http.Client
}

// Run sends messages until in ends; see source.Open.
func Run(o Options, in io.Reader, out io.Writer) error {
	log, err := ledger.Append(o.Dir, ledger.RequestFile)
	if err != nil {
		return err
	}
	c := &client{o: o, log: log, http: &http.Client{Timeout: answerWithin, Transport: &http.Transport{
		Proxy: nil, MaxIdleConnsPerHost: workers, IdleConnTimeout: 500 * time.Millisecond,
		ExpectContinueTimeout: 5 * time.Second, DisableCompression: true,
	}}}
	ctx, gate := source.Open(o.Run.Seed, o.Rate, in, out, log)
	c.gate = gate
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { c.work(ctx) })
	}
	all.Go(func() {
		for {
			select {
			case s := <-gate.AtOnce():
				c.atOnce(ctx, s)
			case <-ctx.Done():
				return
			}
		}
	})
	all.Wait()
	return log.Close()
}

func (c *client) work(ctx context.Context) {
	for {
		batch := false
		from, to, ok := c.gate.Take(ctx, func(r *rand.Rand) int {
			if batch = r.IntN(100) < c.o.Run.Batches; batch {
				return 2 + r.IntN(largest-1)
			}
			return 1
		})
		if !ok {
			return
		}
		c.settle(ctx, c.messages(source.Span{From: from, To: to}, batch, false), batch)
	}
}

// atOnce sends messages that no queue takes: half of them alone, and as many in batches.
func (c *client) atOnce(ctx context.Context, span source.Span) {
	var all sync.WaitGroup
	for n := span.From; n < span.To; {
		batch := n >= (span.From+span.To)/2
		next := n + 1
		if batch {
			next = min(span.To, n+largest/2)
		}
		messages := c.messages(source.Span{From: n, To: next}, batch, true)
		all.Go(func() { c.settle(ctx, messages, batch) })
		n = next
	}
	all.Wait()
}

// messages of a span; lonely are those that no queue takes.
func (c *client) messages(s source.Span, batch, lonely bool) []*message {
	var all []*message
	for n := s.From; n < s.To; n++ {
		m, err := c.message(n, batch, lonely)
		if err != nil {
			panic(err)
		}
		all = append(all, m)
	}
	return all
}

// message n. One in fifty is to be refused.
func (c *client) message(n int, batch, lonely bool) (*message, error) {
	what, body, err := source.Plan(plan.HTTP, c.o.Run.ID, c.o.Run.Seed, n, c.o.Run.Never, c.o.Canary)
	if err != nil {
		return nil, err
	}
	seq := plan.HTTP.Seq(n)
	id := plan.ID(c.o.Run.ID, seq)
	m := &message{
		record: ledger.Requested{Published: ledger.Published{Seq: seq, ID: id, Plan: what.String()}, Batch: batch},
		alias:  Main, key: []string{"chaos", "chaos/with a slash", "chaos.é%2F"}[n%3], body: body,
		headers: source.Headers(what, id),
	}
	r := rand.New(rand.NewPCG(c.o.Run.Seed, uint64(seq)+1<<40))
	if lonely {
		m.alias, m.record.Want = Lonely, http.StatusNotFound
		m.body = m.body[:100] // one that is larger than those before would be sent alone
	} else if r.IntN(50) == 0 {
		switch r.IntN(4) {
		case 0:
			m.alias, m.record.Want = Unknown, http.StatusForbidden
		case 1:
			m.alias, m.record.Want = Lonely, http.StatusNotFound
		case 2:
			m.alias, m.record.Want = Gone, http.StatusNotFound
		case 3:
			if !batch { // a line that is too long could end the batch
				m.body, m.record.Want = append(m.body, make([]byte, MaxBody)...), http.StatusRequestEntityTooLarge
			}
		}
	}
	m.record.Sum = plan.Sum(m.body)
	return m, nil
}

// settle sends messages until each has a result, and writes it down.
func (c *client) settle(ctx context.Context, messages []*message, batch bool) {
	for _, m := range messages {
		m.record.Sent = ledger.Now()
	}
	for n := 0; len(messages) > 0; n++ {
		if n > 0 {
			source.Pause(ctx, min(time.Duration(n)*50*time.Millisecond, 500*time.Millisecond))
		}
		for _, m := range messages {
			m.record.Tries, m.record.Status, m.record.Code = m.record.Tries+1, 0, ""
		}
		if batch {
			c.sendBatch(ctx, messages)
		} else {
			c.send(ctx, messages[0])
		}
		var left []*message
		for _, m := range messages {
			if again := m.conclude(); again && ctx.Err() == nil {
				left = append(left, m)
				continue
			}
			m.record.Done = ledger.Now()
			if err := c.log.Write(m.record); err != nil {
				panic(fmt.Errorf("the ledger cannot be written: %w", err))
			}
			c.gate.Done(1)
		}
		messages = left
	}
}

// Codes of this client's own, where there was no answer.
const (
	unsent = "unsent" // the connection was not accepted
	broken = "broken" // it is unknown
)

// conclude reads a result from what is known, and reports whether the message can be sent again without a doubt.
func (m *message) conclude() (again bool) {
	r := &m.record
	switch {
	case r.Code == unsent, r.Status == http.StatusServiceUnavailable && r.Code != "nacked":
		r.Result = ledger.Nacked
		return true
	case r.Status == http.StatusServiceUnavailable:
		r.Result = ledger.Nacked
	case r.Status >= 200 && r.Status <= 299:
		r.Result = ledger.Confirmed
	case r.Status >= 400 && r.Status <= 499:
		r.Result = ledger.Refused
	default:
		r.Result = ledger.Unknown
	}
	return false
}
