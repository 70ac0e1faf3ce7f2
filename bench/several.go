package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// sevenQueues is how many subscriptions are compared with as many sidecars.
const sevenQueues = 7

// keys is how many keys the messages have whose order is kept.
const keys = 1000

// severalResult has the figures of several queues in one sidecar, and those of order.
type severalResult struct {
	Machine machine          `json:"machine"`
	Quick   bool             `json:"quick,omitempty"` // no figures to quote
	Idle    map[string][]sum `json:"idle,omitempty"`
	Hanging []*run           `json:"hanging,omitempty"`
	Two     []*run           `json:"two,omitempty"`
	Order   []*run           `json:"order,omitempty"`
}

// sum is what processes hold together.
type sum struct {
	RSS         int64 `json:"rss_bytes"`
	Connections int   `json:"connections"`
}

// mainSubscription is the environment of subscriptions, of which the first one has the queues of the other scenarios.
func mainSubscription(others ...string) []string {
	names := append([]string{"main"}, others...)
	return []string{
		"SIDECAR_SUBSCRIPTIONS=" + strings.Join(names, ","), "SIDECAR_SUB_MAIN_QUEUE=" + mainQueue,
		"SIDECAR_SUB_MAIN_RETRY_QUEUE=" + retryQueue, "SIDECAR_SUB_MAIN_DLQ=" + deadQueue,
		"SIDECAR_SUB_MAIN_RETRY_EXCHANGE=bench.retry-exchange." + service,
	}
}

// otherQueue is the queue of the second subscription.
const otherQueue = mainQueue + ".other"

// severalIdle: seven queues in one sidecar, and in seven, some seconds after the start.
func (b *bench) severalIdle() error {
	names := make([]string, sevenQueues)
	separate := make([]candidate, sevenQueues)
	for i := range names {
		names[i] = "q" + strconv.Itoa(i)
		separate[i] = b.sidecar
		separate[i].env = []string{"SIDECAR_SERVICE=bench-" + names[i]}
	}
	together := b.sidecar
	together.env = []string{"SIDECAR_SUBSCRIPTIONS=" + strings.Join(names, ",")}
	var steps []func() error
	for name, candidates := range map[string][]candidate{"one sidecar": {together}, "seven sidecars": separate} {
		steps = append(steps, func() error {
			held, err := b.atRest(candidates)
			b.say("  %-15s %.1f MiB, %d connections", name, mib(held.RSS), held.Connections)
			b.severally.Idle[name] = append(b.severally.Idle[name], held)
			return err
		})
	}
	return b.rounds(min(b.o.runs, 3), steps...)
}

// atRest starts candidates and returns what they hold some seconds later.
func (b *bench) atRest(candidates []candidate) (held sum, err error) {
	before, err := b.connections()
	if err != nil {
		return held, err
	}
	var started []*process
	defer func() {
		for _, p := range started {
			err = errors.Join(err, p.stop())
		}
	}()
	for _, c := range candidates {
		p, err := b.launch(c, 10)
		if err != nil {
			return held, err
		}
		started = append(started, p)
	}
	if err := b.pause(5 * b.rest); err != nil {
		return held, err
	}
	for _, p := range started {
		m, err := memoryOf(p.pid())
		if err != nil {
			return held, fmt.Errorf("%w\n%s", err, p.tail())
		}
		held.RSS += m.now
	}
	now, err := b.connections()
	held.Connections = now - before
	return held, err
}

// connections counts those of the broker.
func (b *bench) connections() (int, error) {
	list, err := exec.CommandContext(b.ctx, os.Getenv("BROKER_CTL"), "-q", "list_connections", "pid").Output()
	if err != nil {
		return 0, fmt.Errorf("count the connections of the broker: %w", err)
	}
	return strings.Count(string(list), "<"), nil
}

// hanging: a queue is drained while the path of another one never answers, and while that one is empty.
func (b *bench) hanging() error {
	c := b.sidecar
	c.env = append(mainSubscription("other"), "SIDECAR_SUB_OTHER_QUEUE="+otherQueue, "SIDECAR_SHUTDOWN_GRACE=1s",
		"SIDECAR_SUB_OTHER_APP_URL=http://"+b.appData+"/hang", "SIDECAR_SUB_OTHER_PREFETCH=200")
	beside := c
	c.name, beside.name = "alone", "beside a path that hangs"
	l := load{Messages: b.o.messages, Body: 1024, Concurrency: 50}
	runs, err := b.compared(l, c, beside, func(name string) error {
		n := 0
		if name == beside.name {
			n = 1000
		}
		return b.fillOther(l, 0, n)
	})
	b.severally.Hanging = runs
	return err
}

// two: two queues drained together, each by half of the workers, and one with all of them.
func (b *bench) two() error {
	one, both := b.sidecar, b.sidecar
	one.name, both.name = "one queue", "two queues"
	one.env = mainSubscription("other")
	one.env = append(one.env, "SIDECAR_SUB_OTHER_QUEUE="+otherQueue)
	both.env = append(slices.Clone(one.env), "SIDECAR_CONCURRENCY=25")
	l := load{Messages: b.o.messages, Body: 1024, Concurrency: 50}
	runs, err := b.compared(l, one, both, func(name string) error {
		if name == one.name {
			return b.fillOther(l, 0, 0)
		}
		half := l.Messages / 2
		if err := b.purgeAndPublish(mainQueue, l, 0, half); err != nil {
			return err
		}
		return b.fillOther(l, half, l.Messages)
	})
	b.severally.Two = runs
	return err
}

// order: messages of many keys, in order by key and without order.
func (b *bench) order() error {
	none, kept := b.sidecar, b.sidecar
	none.name, kept.name = "no order", "order by key"
	kept.env = []string{"SIDECAR_ORDER_BY=header:key", "SIDECAR_ORDER_SCOPE=replica"}
	l := load{Messages: b.o.messages, Body: 1024, Concurrency: 50, Keys: keys}
	runs, err := b.compared(l, none, kept, func(string) error { return nil })
	b.severally.Order = runs
	return err
}

// compared drains the load with two candidates, interleaved, after a warm-up. prepare is called for each run when the
// main queue is filled.
func (b *bench) compared(l load, x, y candidate, prepare func(name string) error) (out []*run, err error) {
	if _, err := b.ch.QueueDeclare(otherQueue, true, false, false, false, amqp.Table{
		"x-dead-letter-exchange": "bench.retry-exchange." + service + ".other", "x-dead-letter-routing-key": "retry",
	}); err != nil {
		return nil, err
	}
	keep := false
	var steps []func() error
	for _, c := range []candidate{x, y} {
		steps = append(steps, func() error {
			if err := errors.Join(b.fill(l), prepare(c.name)); err != nil {
				return err
			}
			r, err := b.drainFilled(c, l)
			if err == nil {
				b.say("  %-25s %8.0f msg/s   CPU s/10k %6.3f", c.name, r.Rate, r.per10k(r.CPU))
			}
			if err == nil && keep {
				out = append(out, r)
			}
			return err
		})
	}
	if err := b.rounds(1, steps...); err != nil {
		return nil, err
	}
	keep = true
	err = b.rounds(b.o.runs, steps...)
	_, deleteErr := b.ch.QueueDelete(otherQueue, false, false, false)
	return out, errors.Join(err, deleteErr)
}

// fillOther purges the second queue and publishes messages of the load to it.
func (b *bench) fillOther(l load, from, to int) error {
	return b.purgeAndPublish(otherQueue, l, from, to)
}

func (b *bench) purgeAndPublish(queue string, l load, from, to int) error {
	if _, err := b.ch.QueuePurge(queue, false); err != nil {
		return err
	}
	return b.put(queue, l, from, to)
}

// figures are the measured ones that have a bar.
func (s *severalResult) figures() (out []figure) {
	add := func(name string, values []float64, unit string, bar float64, atLeast bool) {
		if len(values) > 0 {
			out = append(out, figure{name, spreadOf(values), unit, bar, math.NaN(), atLeast})
		}
	}
	var rss, open []float64
	for _, i := range s.Idle["one sidecar"] {
		rss, open = append(rss, mib(i.RSS)), append(open, float64(i.Connections))
	}
	add("seven queues idle: RSS", rss, " MiB", 20, false)
	add("seven queues idle: connections", open, "", 2, false)
	add("rate beside a path that hangs ÷ alone", share(s.Hanging), "", 0.95, true)
	add("rate of two queues ÷ one, with the same workers", share(s.Two), "", 0.95, true)
	add("rate in order by 1,000 keys ÷ without order, C=50", share(s.Order), "", 0.90, true)
	return out
}

// share is the rate of the second candidate by that of the first, round by round.
func share(runs []*run) []float64 {
	names := candidatesOf(runs)
	if len(names) < 2 {
		return nil
	}
	slices.SortFunc(names, func(x, y string) int { return first(x) - first(y) })
	return ratios(each(of(runs, names[1]), rateOf), each(of(runs, names[0]), rateOf))
}

// first is 0 for the candidate that the other one is compared with.
func first(name string) int {
	if slices.Contains([]string{"alone", "one queue", "no order"}, name) {
		return 0
	}
	return 1
}

// summary is how a report begins.
func summary(b *strings.Builder, m machine, quick bool, figures []figure) {
	fmt.Fprintf(b, "Measured %s at %s, %s, RabbitMQ %s, %s, %d cores for everything, %s. Medians (ranges).\n",
		m.Date, m.Commit, m.Go, m.Broker, m.CPU, m.Cores, m.Kernel)
	if quick {
		fmt.Fprintf(b, "\n**A quick look: a tenth of the messages.**\n")
	}
	table(b, []string{"figure", "measured", "bar", ""}, func(row func(...string)) {
		for _, f := range figures {
			row(f.name, f.got.String()+f.unit, f.limit(f.bar), f.verdict())
		}
	})
}

// markdown is the report.
func (s *severalResult) markdown(figures []figure) string {
	var b strings.Builder
	summary(&b, s.Machine, s.Quick, figures)
	if len(s.Idle) > 0 {
		fmt.Fprintf(&b, "\n### Seven queues, idle\n")
		table(&b, []string{"", "RSS MiB", "connections"}, func(row func(...string)) {
			for _, name := range []string{"one sidecar", "seven sidecars"} {
				var rss, open []float64
				for _, i := range s.Idle[name] {
					rss, open = append(rss, mib(i.RSS)), append(open, float64(i.Connections))
				}
				row(name, spreadOf(rss).String(), spreadOf(open).String())
			}
		})
	}
	for _, part := range []struct {
		title string
		runs  []*run
	}{{"A queue drained while the path of another hangs", s.Hanging}, {"Two queues drained together", s.Two},
		{"Order by 1,000 keys", s.Order}} {
		if len(part.runs) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n\n%d messages a run, interleaved.\n", part.title, part.runs[0].Load.Messages)
		table(&b, []string{"", "msg/s", "CPU s/10k", "broker CPU s/10k", "peak RSS MiB"}, func(row func(...string)) {
			for _, name := range candidatesOf(part.runs) {
				own := of(part.runs, name)
				row(name, spreadOf(each(own, rateOf)).String(), spreadOf(each(own, cpuPer)).String(),
					spreadOf(each(own, brokerPer)).String(), number(spreadOf(each(own, peakOf)).Median))
			}
		})
	}
	return b.String()
}
