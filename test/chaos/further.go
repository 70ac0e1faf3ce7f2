package main

// further are deliberate bugs beside the usual ones, of the kind that a change could bring in by accident.
var further = []mutant{
	{
		name: "gives back what it should let wait",
		edits: []edit{{
			"internal/topology/settlement.go", "		s.Final = FinalReject\n", "		s.Final = FinalRequeue\n",
		}},
		caught: []string{"I5"}, flags: flags(parks, "-faults=0"),
	},
	{
		name:   "gives back at once what came too early",
		edits:  []edit{{"internal/topology/settlement.go", "s.Hold, s.Jitter = v.Delay, v.Jitter\n", "\n"}},
		caught: []string{"I5"}, flags: flags(storm, "-faults=0"),
	},
	{
		name: "parks without the body",
		edits: []edit{{"internal/topology/park.go", "	shrinkToFrame(&pub.Msg, FrameMax-parkReserve)\n	return pub",
			"	shrinkToFrame(&pub.Msg, FrameMax-parkReserve)\n	pub.Msg.Body = nil\n	return pub"}},
		caught: []string{"I3"}, flags: flags(parks, "-faults=0"),
	},
	{
		name: "parks without the status",
		edits: []edit{{
			"internal/topology/park.go", "		h[HeaderFinalStatusCode] = int32(o.Status)", "		_ = int32(o.Status)",
		}},
		caught: []string{"I4"}, flags: flags(parks, "-faults=0"),
	},
	{
		name:   "waits for an answer far too long",
		edits:  []edit{{"internal/dispatch/dispatch.go", "start.Add(t.o.Timeout)", "start.Add(20 * t.o.Timeout)"}},
		caught: []string{"I9"}, flags: flags(storm, "-faults=0"),
	},
	{
		name: "lets requests go when it stops",
		edits: []edit{{"internal/consume/consumer.go", "		close(c.stop.stopping)\n",
			"		close(c.stop.stopping)\n		c.stop.cancel(errStopping)\n"}},
		caught: []string{"I5", "I6"}, flags: flags(storm, "-faults=8 -kinds=sidecar-term -rate=1500 -concurrency=2 "+
			"-prefetch=64"),
	},
	{
		name: "loses a worker now and then",
		edits: []edit{
			{"internal/consume/handle.go", "		c.counts.inflight.Add(-int64(messages))\n",
				"		c.counts.inflight.Add(-int64(messages))\n		if rand.IntN(150) == 0 && c.counts.returned.Add(1) < 13 {\n" +
					"			return\n		}\n"},
			{"internal/consume/handle.go", "import (\n", "import (\n	\"math/rand/v2\"\n\n"},
		},
		caught: []string{"I9"}, flags: flags(storm, "-faults=1 -kinds=redrive"),
	},
	{
		name: "keeps a goroutine for every failure",
		edits: []edit{{
			"internal/consume/handle.go", "	return a.session.plan().Settlement(",
			"	if !o.OK() {\n		go func() { select {} }()\n	}\n" + "	return a.session.plan().Settlement(",
		}},
		caught: []string{"I10"}, flags: flags(storm, "-faults=1 -kinds=redrive"),
	},
	{
		name: "logs what it sends",
		edits: []edit{{
			"internal/consume/handle.go", "	return a.session.plan().Settlement(", "	if !o.OK() {\n" +
				"		c.o.Logger.Info(\"failed\", \"body\", string(a.m.Body))\n	}\n	return a.session.plan().Settlement(",
		}},
		caught: []string{"I15"}, flags: flags(storm, "-faults=0"),
	},
	{
		name: "takes a message that comes again for done",
		edits: []edit{{"internal/consume/handle.go", "	case c.o.Plan.Foreign(&a.Delivery.Delivery):\n",
			"	case c.o.Plan.Foreign(&a.Delivery.Delivery) || m.Redelivered:\n"}},
		caught: []string{"I1", "I2"}, flags: flags(storm, "-faults=6 -kinds=sidecar-kill,cut -rate=1500 -concurrency=2 "+
			"-prefetch=64"),
	},
	{
		name: "counts an app that is away as a failure",
		edits: []edit{
			{"internal/app/plan.go", "CountRefused: cfg.Retry.AppDown == config.AppDownRetry", "CountRefused: true"},
			{"internal/app/options.go", "CountRefused: cfg.Retry.AppDown == config.AppDownRetry", "CountRefused: true"},
		},
		caught: []string{"I7"}, flags: flags(storm, "-faults=3 -kinds=app-closed"),
	},
	{
		name:   "reports a wrong attempt to the app",
		edits:  []edit{{"internal/dispatch/headers.go", "int64(m.RetryCount)+1)", "int64(m.RetryCount))"}},
		caught: []string{"I5"}, flags: flags(storm, "-faults=0"),
	},
	{
		name: "counts what was settled twice",
		edits: []edit{{"internal/consume/settler.go", "	s.metrics.settled[e.action][e.reason].Inc()\n",
			"	s.metrics.settled[e.action][e.reason].Add(2)\n"}},
		caught: []string{"I11"}, flags: flags(storm, "-faults=0"),
	},
	{
		name: "ends when its password is refused",
		edits: []edit{{
			"internal/broker/supervise.go", "		if why == causeAuth || why == causeVhost ||",
			"		if why == causeAuth {\n			return err\n		}\n		if why == causeAuth || why == causeVhost ||",
		}},
		caught: []string{"I9"}, flags: flags(storm, "-faults=1 -kinds=password"),
	},
	{
		name:   "leaves a property out",
		edits:  []edit{{"internal/dispatch/headers.go", "	r.set(\"Amqp-Correlation-Id: \", m.CorrelationID)\n", ""}},
		caught: []string{"I3"}, flags: flags(storm, "-faults=0"),
	},
	{
		name: "asks for no window",
		edits: []edit{{"internal/broker/subscription.go", "return s.ch.Qos(prefetch, 0, false)",
			"return s.ch.Qos(0*prefetch, 0, false)"}},
		caught: []string{"I9"}, flags: flags(storm, "-faults=0"),
	},
	{
		name: "forgets what the app has answered when a connection is lost",
		edits: []edit{{"internal/memory/memory.go", "	m.expect(k, expected{outcome: o, due:",
			"	m.expect(k, expected{due:"}},
		caught: []string{"I6"}, flags: flags(storm, "-faults=6 -kinds=cut -rate=1500"),
	},
	{
		name:   "takes another message for one that it remembers",
		edits:  []edit{{"internal/memory/memory.go", "id: d.Identity,", "id: d.Identity % 2,"}},
		caught: []string{"I1", "I2"}, flags: flags(storm, "-faults=6 -kinds=cut -rate=1500"),
	},
	{
		name:   "lets more requests go than it may",
		edits:  []edit{{"internal/consume/pump.go", "c.started < c.o.Concurrency &&", "c.started < 2*c.o.Concurrency &&"}},
		caught: []string{"I10"}, flags: flags(storm, "-faults=0"),
	},
}
