package test

// preset is one topology, shrunk to quick delays, and where its parked messages end.
type preset struct {
	name          string
	env           []string
	exchange, key string
	queue, dlq    string
	retries       int
	queues        []string // in which retries wait
}

// presets are one of each topology, with names that begin with p.
func presets(p string) []preset {
	return []preset{
		{
			"fanout", []string{"MAX_RETRIES", "2", "RETRY_DELAY", "300ms"}, p + ".main-exchange", "order.created",
			p + ".queue." + p + "-svc", p + ".dlq." + p + "-svc", 2, []string{p + ".retry-queue." + p + "-svc"},
		}, {
			"fanout", []string{"MAX_RETRIES", "3", "RETRY_DELAYS", "300ms,600ms", "RETRY_DELAY", ""}, p + ".main-exchange", "order.created",
			p + ".queue." + p + "-svc", p + ".dlq." + p + "-svc", 3,
			[]string{p + ".retry-queue." + p + "-svc.300ms", p + ".retry-queue." + p + "-svc.600ms"},
		}, {
			"topic-tiers", []string{"RETRY_DELAYS", "300ms,500ms,700ms", "RETRY_DELAY", ""}, p + ".events", "svc.created",
			p + ".svc", p + ".events.dlq", 3,
			[]string{p + ".svc.retry.300ms", p + ".svc.retry.500ms", p + ".svc.retry.700ms"},
		}, {
			"per-queue", []string{"RETRY_DELAY", "300ms", "EXCHANGE", p + ".ex", "BINDINGS", p + ".ex:order.#"}, p + ".ex", "order.created",
			"q." + p + "-svc", "q." + p + "-svc.dlq", 3, []string{"q." + p + "-svc.retry"},
		}, {
			"delay-ladder", []string{"RETRY_DELAYS", "300ms,500ms,700ms", "RETRY_DELAY", "", "BINDINGS", p + ".events:order.#"}, p + ".events", "order.created",
			p + ".svc", p + ".svc.dlq", 3, []string{p + ".svc.delay_300ms", p + ".svc.delay_500ms", p + ".svc.delay_700ms"},
		}, {
			"dead-letter", []string{"RETRY_DELAY", "300ms", "QUEUE", p + ".orders", "BINDINGS", p + ":order.*"}, p, "order.created",
			p + ".orders", p + ".orders.dlq", 4, []string{p + ".orders.retry"},
		}, {
			"native", []string{"MAX_RETRIES", "2", "RETRY_DELAY", "300ms"}, p + ".main-exchange", "order.created",
			p + ".queue." + p + "-svc", p + ".dlq." + p + "-svc", 2, nil,
		},
	}
}
