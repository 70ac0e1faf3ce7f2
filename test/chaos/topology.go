package main

import "time"

// topology is what a storm has to know of a preset.
type topology struct {
	waits   []string // the queues beside the service's own in which retries wait
	quorum  bool     // it needs quorum queues
	forgets bool     // see ledger.Run
	returns int      // the delivery limit of the service's queue, for each retry; 0: the broker counts nothing
}

var topologies = map[string]topology{
	"fanout": {waits: []string{retryQueue}},
	"native": {quorum: true, forgets: true, returns: 20},
}

// queues are those that hold messages which are not parked.
func (o *options) queues() []string {
	return append([]string{mainQueue}, topologies[o.topology].waits...)
}

// calm is how long nothing may be anywhere before everything counts as settled: a message can be between two queues.
const calm = time.Second

// calm is longer where the service's queue delays messages itself: the counts of a queue that are up to date leave them
// out.
func (o *options) calm() time.Duration {
	if len(topologies[o.topology].waits) == 0 {
		return calm + o.delay
	}
	return calm
}
