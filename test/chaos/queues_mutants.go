package main

const (
	ordered = "-queues=0 -ordered=1 -messages=1000 -keys=20 -faults=0"
	closing = "-queues=3 -messages=1000 -faults=4 -kinds=channel-close,queue-delete"
)

// neighbours are deliberate bugs of several queues in one sidecar, and of the order by key.
var neighbours = []mutant{
	{
		name:   "ignores the key",
		edits:  []edit{{"internal/consume/order.go", "	if e.key != \"\" {\n", "	if e.key == \"-\" {\n"}},
		caught: []string{"I16"}, flags: flags(ordered), queues: true,
	},
	{
		name: "puts a failed message behind the others of its key",
		edits: []edit{{
			"internal/consume/order.go", "		o.start(e)\n	}\n}\n\n// again ends an attempt",
			"		if lane := o.lanes[e.key]; len(lane) > 1 {\n			o.lanes[e.key] = append(lane[1:], e)\n			e = lane[1]\n		}\n" +
				"		o.start(e)\n	}\n}\n\n// again ends an attempt",
		}},
		caught: []string{"I16"}, flags: flags(ordered), queues: true,
	},
	{
		name: "ends the connection of all with the channel of one",
		edits: []edit{{
			"internal/broker/supervise.go", "		_, pause, log := d.lost(",
			"		s.Kill()\n		_, pause, log := d.lost(",
		}},
		caught: []string{"I17"}, flags: flags(closing), queues: true,
	},
}
