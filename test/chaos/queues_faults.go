package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/console"
	"sidecar/test/chaos/ledger"
	"sidecar/test/chaos/queues"
)

// queueFault is a kind of trouble of one queue, or of all.
type queueFault struct {
	kind  string
	local bool // it concerns one queue
	do    func(ctx context.Context, r *queueRig, f *queues.Fault) error
}

var queueFaults = []queueFault{
	{"sidecar-kill", false, endedSidecar(syscall.SIGKILL)},
	{queues.SidecarEnded, false, endedSidecar(syscall.SIGTERM)},
	{"app-kill", false, func(ctx context.Context, r *queueRig, _ *queues.Fault) error {
		pid := r.app.pid()
		return errors.Join(r.app.signal(syscall.SIGKILL), r.app.again(ctx, pid))
	}},
	{queues.BrokerKilled, false, func(_ context.Context, r *queueRig, _ *queues.Fault) error {
		return errors.Join(r.node.kill(), r.node.start())
	}},
	{"cut", false, func(_ context.Context, r *queueRig, f *queues.Fault) error {
		r.wires[f.ID%len(r.wires)].Cut()
		return nil
	}},
	{queues.QueueDeleted, true, deletedQueue},
	{queues.Redeclared, true, redeclared},
	{queues.Purged, true, purged},
	{"channel-close", true, closedChannel},
	{"path-fails", true, misbehaves(queues.Fails)},
	{"path-hangs", true, misbehaves(queues.Hangs)},
}

func queueFaultOf(kind string) queueFault {
	for _, f := range queueFaults {
		if f.kind == kind {
			return f
		}
	}
	return queueFault{}
}

// queueDue is one fault of a schedule.
type queueDue struct {
	At    int // messages published
	Fault queues.Fault
}

// queueSchedule draws the faults: each kind as often as the others, in a random order.
func queueSchedule(o *queueOptions) (list []queueDue) {
	var able []queueFault
	for _, f := range queueFaults {
		asked := slices.Contains(strings.Split(o.kinds, ","), f.kind)
		// Classic queues lose what is on its way to a retry when their broker is killed, unless retries wait in the sidecar.
		fits := f.kind != queues.BrokerKilled || o.queueType == "quorum" || o.ordered >= max(1, o.queues)
		if asked || o.kinds == "" && fits {
			able = append(able, f)
		}
	}
	rng := rand.New(rand.NewPCG(o.seed, 0x9e0e5))
	for i := range o.faults {
		f := able[i%len(able)]
		due := queueDue{Fault: queues.Fault{Kind: f.kind, Queue: -1}}
		if f.local {
			due.Fault.Queue = rng.IntN(max(1, o.queues))
		}
		list = append(list, due)
	}
	rng.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
	for i := range list {
		list[i].At, list[i].Fault.ID = o.messages*(i+1)/(o.faults+1), i+1
	}
	return list
}

// happen makes one fault and waits until every queue has a receipt again.
func (r *queueRig) happen(ctx context.Context, d queueDue) {
	f := d.Fault
	f.Start = ledger.Now()
	if err := queueFaultOf(f.Kind).do(ctx, r, &f); err != nil {
		f.Error = err.Error()
	}
	f.End = ledger.Now()
	err := until(ctx, recoverWithin, "receipts of every queue", func() bool {
		seen := r.seen()
		if len(seen) == 0 || slices.ContainsFunc(seen, func(s queues.Seen) bool { return s.Last <= f.End }) {
			return false
		}
		f.Recovered = ledger.Now()
		return true
	})
	where := "all"
	if f.Queue >= 0 {
		where = r.run.Queues[f.Queue]
	}
	say("fault %d: %s of %s after %d messages, %s, recovered after %s%s", f.ID, f.Kind, where, d.At, took(f.Start, f.End),
		took(f.End, f.Recovered), failure(errors.Join(err, textError(f.Error))))
	if err := r.faults.Write(f); err != nil {
		say("fault ledger: %v", err)
	}
}

func textError(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// endedSidecar ends one replica, another one each time.
func endedSidecar(s syscall.Signal) func(context.Context, *queueRig, *queues.Fault) error {
	return func(ctx context.Context, r *queueRig, f *queues.Fault) error {
		p := r.sidecars[f.ID%len(r.sidecars)]
		pid := p.pid()
		if err := p.signal(s); err != nil {
			return err
		}
		return errors.Join(p.again(ctx, pid), until(ctx, time.Minute, "the sidecar to be ready again", func() bool {
			return r.ready(f.ID % len(r.sidecars))
		}))
	}
}

// deletedQueue deletes a queue, which the sidecar declares again.
func deletedQueue(_ context.Context, r *queueRig, f *queues.Fault) error {
	return r.node.with(func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(r.run.Queues[f.Queue], false, false, false)
		return err
	})
}

// redeclared deletes a queue and declares it again, with the same arguments. The consumers of a quorum queue that is
// declared again at once are neither cancelled nor served by the broker, so there is a pause.
func redeclared(ctx context.Context, r *queueRig, f *queues.Fault) error {
	name := r.run.Queues[f.Queue]
	args, err := r.node.arguments(name)
	if err != nil {
		return err
	}
	return r.node.with(func(ch *amqp.Channel) error {
		if _, err := ch.QueueDelete(name, false, false, false); err != nil {
			return err
		}
		if r.o.queueType == "quorum" {
			rest(ctx, 100*time.Millisecond)
		}
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			return err
		}
		return ch.QueueBind(name, "", mainExchange, false, nil)
	})
}

// arguments returns the arguments of a queue: texts, booleans, and numbers, all of one type.
func (n *node) arguments(queue string) (amqp.Table, error) {
	value, err := n.Eval(fmt.Sprintf(`(fun({ok, Q}) -> binary_to_list(base64:encode(iolist_to_binary(rabbit_json:encode(
		maps:from_list([{K, V} || {K, _, V} <- amqqueue:get_arguments(Q)]))))) end)(
		rabbit_amqqueue:lookup({resource, <<"/">>, queue, %s}))`, console.Binary(queue)))
	if err != nil {
		return nil, err
	}
	text, err := base64.StdEncoding.DecodeString(strings.Trim(value, `"`))
	if err != nil {
		return nil, err
	}
	var args amqp.Table
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&args); err != nil {
		return nil, err
	}
	for k, v := range args {
		if number, ok := v.(json.Number); ok {
			if args[k], err = number.Int64(); err != nil {
				return nil, err
			}
		}
	}
	return args, nil
}

// purged lets messages wait behind an app that hangs, and then purges the queue: how many were purged is known.
func purged(ctx context.Context, r *queueRig, f *queues.Fault) error {
	if err := r.mode(f.Queue, queues.Hangs); err != nil {
		return err
	}
	rest(ctx, time.Second)
	err := r.node.with(func(ch *amqp.Channel) (err error) {
		f.Purged, err = ch.QueuePurge(r.run.Queues[f.Queue], false)
		return err
	})
	return errors.Join(err, r.mode(f.Queue, queues.Works))
}

// closedChannel makes the broker close the channel of the queue's consumers, as it does after an ack that it cannot
// place.
func closedChannel(_ context.Context, r *queueRig, f *queues.Fault) error {
	n, err := r.node.count(`length([P || C <- rabbit_amqqueue:consumers_all(<<"/">>),
		{queue_name, {resource, _, _, %s}} <- C, {channel_pid, P} <- C,
		ok =:= gen_server:cast(P, {method, {'basic.ack', 123456789, false}, none, noflow}),
		begin R = monitor(process, P), receive {'DOWN', R, process, P, _} -> true after 60000 -> false end end])`,
		console.Binary(r.run.Queues[f.Queue]))
	if err == nil && n == 0 {
		err = errors.New("no channel was closed")
	}
	return err
}

// misbehaves makes the app fail or hang for the messages of one queue.
func misbehaves(m queues.Mode) func(context.Context, *queueRig, *queues.Fault) error {
	return func(ctx context.Context, r *queueRig, f *queues.Fault) error {
		if err := r.mode(f.Queue, m); err != nil {
			return err
		}
		rest(ctx, 4*time.Second)
		return r.mode(f.Queue, queues.Works)
	}
}
