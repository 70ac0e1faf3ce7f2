package main

// inQueue is a storm whose messages wait in their own queue, some of them given back when connections are cut.
const inQueue = "-topology=native -messages=3000 -warm-up=100 -liveness=100 -never=15 -rate=250 -concurrency=2 " +
	"-prefetch=64 -faults=8 -kinds=cut"

// native are the deliberate bugs of queues that delay messages themselves. They need a broker that has them.
var native = []mutant{
	{
		name: "gives back what its queue should delay",
		edits: []edit{{"internal/consume/settler.go", "err = s.acker.Delay(e.tag)",
			"err = s.acker.Requeue(e.tag)"}},
		caught: []string{"I5", "I9"}, // it pauses all the time: as few messages as can be
		flags:  flags("-messages=100 -warm-up=100 -liveness=10 -never=5 -topology=native -faults=0 -patience=15s"),
	},
	{
		name: "takes the broker's count for its own attempts",
		edits: []edit{{"internal/consume/handle.go", "	a.m.RetryCount = max(a.m.RetryCount, a.known.Failed)\n",
			"	a.m.RetryCount += message.Deliveries(a.m.Headers)\n"}},
		caught: []string{"I7"}, flags: flags(inQueue),
	},
	{
		name: "counts what it gives back",
		edits: []edit{
			{"internal/memory/session.go", "		s.all.returned(&k, o)\n	}\n	s.end(&k)\n}\n\n// Sent", "		k.Failed++\n" +
				"		s.all.returned(&k, nil)\n	}\n	s.end(&k)\n}\n\n// Sent"},
		},
		caught: []string{"I7"}, flags: flags(inQueue),
	},
	{
		name:   "forgets the attempts of what a lost connection returns",
		edits:  []edit{{"internal/memory/expected.go", "x.deliveries <= deliveries && ", "x.deliveries == deliveries && "}},
		caught: []string{"I5", "I6"}, flags: flags(inQueue),
	},
	{
		name:   "lets the broker count lost connections against the retries",
		edits:  []edit{{"internal/topology/delay.go", "const returnsPerRetry = 20", "const returnsPerRetry = 1"}},
		caught: []string{"I4"}, flags: flags(inQueue),
	},
}
