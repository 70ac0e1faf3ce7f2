package config

import "time"

// maxPrefetch is the largest prefetch AMQP can say: 16 bits, and 0 means without limit.
const maxPrefetch = 65535

// Window is how many messages are held and POSTed at a time.
type Window struct {
	// Messages POSTed at once; with `SIDECAR_BATCH_SIZE` POSTs at once.
	Concurrency int `env:"CONCURRENCY" envDefault:"10" range:"1..10000"`

	// Messages received from the broker and not settled yet: those being POSTed, those next in line, and those delayed
	// after a 425 (at most prefetch − concurrency). At least `SIDECAR_CONCURRENCY`. [With an order by a
	// key](subscriptions.md#order) the default is smaller where memory is short or a rate is set. `auto`: the default
	// while attempts take less than a second, without an order [half of it while they take
	// longer](subscriptions.md#long-attempts).
	Prefetch int `env:"PREFETCH" derived:"twice SIDECAR_CONCURRENCY, with SIDECAR_ORDER_BY ten times, times SIDECAR_BATCH_SIZE" range:"1..65535" word:"auto"`

	// Messages in one POST at most, all of them for one URL, with bodies of at most 1 MiB in total: a larger message is
	// POSTed alone. `1`: each message is a request of its own. With more every POST has [the form of a batch](batches.md),
	// also one with a single message.
	BatchSize int `env:"BATCH_SIZE" envDefault:"1" range:"1..1000"`

	// How long a batch that is not full waits for more messages, from its first one on.
	BatchWait time.Duration `env:"BATCH_WAIT" envDefault:"20ms" range:"0s..1s"`

	// `jsonl`: a line of JSON for each message, as `/publish:batch` takes it. `cloudevents`: a JSON array of CloudEvents.
	BatchFormat string `env:"BATCH_FORMAT" envDefault:"jsonl" oneof:"jsonl|cloudevents"`

	// Messages POSTed per second, minute or hour by this replica, evenly: at most a tenth of a second's worth at once.
	// Messages that wait for it hold a place of `SIDECAR_PREFETCH`, and nothing is counted.
	RateLimit Rate `env:"RATE_LIMIT" otherwise:"no limit" allowed:"a whole number from 1 to 1000000 and '/s', '/m' or '/h'"` // 0 = no limit

	// The same as `SIDECAR_CONCURRENCY` for all subscriptions together. They take turns, and one has at most so many that each of
	// the others has one left: at least the number of subscriptions.
	MaxConcurrency int `env:"MAX_CONCURRENCY" otherwise:"the sum of the subscriptions' SIDECAR_CONCURRENCY" range:"1..640000" scope:"process"` // 0 = no bound

	// A message with a larger body is parked with the reason `too_large` and never POSTed. At most `SIDECAR_MEMORY`; with
	// `SIDECAR_BATCH_SIZE` what is larger than a third of that is parked, too. What the app publishes is answered with 413
	// when it is larger: reading it takes up to three times its size, of half of `SIDECAR_MEMORY` at most. With several
	// subscriptions the largest one counts there.
	MaxBody Size `env:"MAX_BODY" envDefault:"16MiB" range:"1..512MiB"`

	// Memory for everything that is received, in total: messages with their decoded headers, bodies and batches that the
	// app publishes, rows of the outbox, requests with several messages, answers, windows of the dead-letter queue. When
	// it is used up, the sidecar reads no more from the broker until some of it is free, and answers `/publish` with 503
	// `busy`. The limit is the container's, or `GOMEMLIMIT` when that is smaller; the rest of it is for the program.
	Memory Size `env:"MEMORY" derived:"three quarters of the memory limit; 256MiB without a limit" range:"4MiB..1024GiB" scope:"process"`

	// Directory for bodies that do not fit into `SIDECAR_MEMORY`: of a message that is larger than all of it, while it is
	// parked, and of messages for which there was no room for 10 seconds. Up to 1 GiB, in files without a name. It has to
	// be on a disk. Where it is in memory, not writable or full, such a message is held for a while and then requeued,
	// again and again, with a warning in `/status`; messages behind it are handled.
	SpoolDir string `env:"SPOOL_DIR" check:"directory" envDefault:"/tmp" allowed:"an absolute path" scope:"process"`
}

// BatchBytes bounds the bodies of one POST of a batch, in total.
const BatchBytes Size = 1 << 20

const (
	defaultMemory = 256 << 20 // where no limit is known, in bytes
	leastMemory   = 4 << 20
)

func (l *loader) checkWindow() {
	const concurrency, prefetch = "SIDECAR_CONCURRENCY", "SIDECAR_PREFETCH"
	w := &l.cfg.Window
	if l.cfg.Retry.OrderBy == "queue" && l.ok(concurrency) {
		if l.isSet(concurrency) && w.Concurrency > 1 {
			l.warn(concurrency, "with SIDECAR_ORDER_BY=queue one message is POSTed at a time")
		}
		w.Concurrency = 1
	}
	l.checkMemory()
	switch auto := l.byName[prefetch].raw != ""; {
	case !l.ok(concurrency, prefetch, "SIDECAR_BATCH_SIZE"):
	case !l.isSet(prefetch):
		w.Prefetch = l.defaultPrefetch()
		if auto && l.cfg.Retry.OrderBy == "" { // in order all replicas need the same
			l.cfg.LongPrefetch = min(w.Concurrency*w.BatchSize, maxPrefetch)
		}
	case w.Prefetch < w.Concurrency:
		l.reject(prefetch, "must be at least SIDECAR_CONCURRENCY, which is %d", w.Concurrency)
	}
	if most, n := "SIDECAR_MAX_CONCURRENCY", len(l.subscriptions()); l.ok(most) && l.isSet(most) && w.MaxConcurrency < n {
		l.reject(most, "must be at least the number of subscriptions, which is %d: each can POST one message then", n)
	}
	l.checkBatch()
}

// defaultPrefetch is larger in order, so that other keys find places beside the messages of a failing key. Not with a
// rate, at which they would wait too long, nor larger than what fits at 128 KiB each into the memory for deliveries.
func (l *loader) defaultPrefetch() int {
	w, by := &l.cfg.Window, l.cfg.Retry.OrderBy
	n := 2 * w.Concurrency * w.BatchSize
	if by != "" && by != "queue" && w.RateLimit == 0 {
		queues := max(1, len(l.subscriptions()))
		n = max(n, min(5*n, int(w.Memory/2)/queues/(128<<10)))
	}
	return min(n, maxPrefetch)
}

// checkBatch judges what the variables of a batch come to, after SIDECAR_MEMORY.
func (l *loader) checkBatch() {
	const size, memory, maxBody = "SIDECAR_BATCH_SIZE", "SIDECAR_MEMORY", "SIDECAR_MAX_BODY"
	const concurrency, prefetch = "SIDECAR_CONCURRENCY", "SIDECAR_PREFETCH"
	w := &l.cfg.Window
	switch r := l.cfg.Retry; {
	case !l.ok(size):
		return
	case w.BatchSize == 1:
		for _, name := range []string{"SIDECAR_BATCH_WAIT", "SIDECAR_BATCH_FORMAT"} {
			if l.isSet(name) {
				l.warn(name, "has no effect while %s is 1", size)
			}
		}
		return
	case r.OrderBy == "queue":
		l.reject(size, "cannot be combined with SIDECAR_ORDER_BY=queue: one message is POSTed at a time")
	case l.cfg.App.ResponseDialect == DialectDapr:
		l.reject(size, "cannot be combined with SIDECAR_RESPONSE_DIALECT=dapr: that answer is about a single message")
	}
	if all := w.Concurrency * w.BatchSize; l.ok(concurrency, prefetch) && w.Prefetch < min(all, maxPrefetch) {
		l.warn(prefetch, "is less than %s times %s, which is %d: batches stay smaller", concurrency, size, all)
	}
	if !l.ok(memory, concurrency, maxBody) {
		return
	}
	// The bodies may be text of which each byte is escaped. About 3 KiB are for what else is in a message, and 4 for a
	// verdict; see dispatch.
	bodies := min(BatchBytes, w.MaxBody)
	one := 2*bodies + Size(w.BatchSize)*(7<<10) + 256<<10
	switch all := one * Size(w.Concurrency); {
	case bodies+one > w.Memory:
		l.reject(size, "a POST of %d messages may need %dMiB, and %s is %v", w.BatchSize, (bodies+one)>>20, memory, w.Memory)
	case all > w.Memory/2:
		l.warn(size, "%d POSTs with %v of bodies may need %dMiB, and half of %s, which is %v, is for all of them: some may "+
			"wait for others", w.Concurrency, bodies, all>>20, memory, w.Memory)
	}
	const others = 1 << 20 // for headers and the answer
	if most := (w.Memory - others) / 3; w.MaxBody > most {
		l.warn(maxBody, "with %s a message of more than %dMiB may be parked as too_large: its POST takes three times its "+
			"body from %s, which is %v", size, most>>20, memory, w.Memory)
	}
}

// checkMemory derives SIDECAR_MEMORY, and refuses bodies that could never be held.
func (l *loader) checkMemory() {
	const memory, maxBody = "SIDECAR_MEMORY", "SIDECAR_MAX_BODY"
	w := &l.cfg.Window
	switch {
	case !l.ok(memory):
		return
	case !l.isSet(memory):
		w.Memory = defaultMemory
		if l.memory > 0 {
			w.Memory = max(Size(l.memory/4*3), leastMemory)
		}
	case l.memory > 0 && int64(w.Memory) >= l.memory:
		l.reject(memory, "the memory limit is %v, and the program itself needs some of it", Size(l.memory))
		return
	case l.memory > 0 && int64(w.Memory) > l.memory/4*3:
		l.warn(memory, "leaves less than a quarter of the memory limit of %v to the program itself: it may be killed",
			Size(l.memory))
	}
	switch {
	case !l.ok(maxBody):
	case w.MaxBody > w.Memory:
		l.reject(maxBody, "one such message does not fit into SIDECAR_MEMORY, which is %v", w.Memory)
	case l.cfg.Publish.Addr != "" && w.MaxBody > w.Memory/4:
		l.warn(maxBody, "bodies larger than %v that the app publishes are refused with 413: reading one takes more than "+
			"half of SIDECAR_MEMORY, which is %v", w.Memory/4, w.Memory)
	}
}
