package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// stage is a running app beside a running sidecar.
type stage struct {
	options
	screen       *screen
	app, sidecar *child
}

func (s *stage) play(ctx context.Context) error {
	q, err := openQueues(s.amqpURL)
	if err != nil {
		return err
	}
	defer func() { _ = q.close() }()

	sidecar := &follower{child: s.sidecar, parse: sidecarEvent}
	sidecar.news() // how it started is another story
	s.screen.title("Four messages for an app that does not always answer 200")
	first := firstScene()
	if err := s.publish(ctx, q, first); err != nil {
		return err
	}
	app := s.listen()
	if err := s.follow(ctx, first, app, sidecar); err != nil {
		return err
	}

	wrong, err := s.lookAtDLQ(q, first[len(first)-1])
	if err != nil {
		return err
	}

	s.screen.title("The app is repaired: what is parked returns")
	second := secondScene()
	if err := s.bringBack(ctx, second, app, sidecar); err != nil {
		return err
	}

	s.screen.title("The app goes away, a message comes, the app is up again")
	third := thirdScene()
	if err := s.takeAppAway(ctx, q, third, sidecar); err != nil {
		return err
	}
	if err := s.follow(ctx, third, s.listen(), sidecar); err != nil {
		return err
	}
	s.screen.title("Orders and their messages, written into PostgreSQL in one transaction")
	outbox, err := s.emit(ctx)
	if err != nil {
		return err
	}
	s.screen.title("A message over HTTP")
	fourth := fourthScene()
	app = s.listen()
	if err := s.publishOverHTTP(ctx, fourth[0]); err != nil {
		return err
	}
	if err := s.follow(ctx, fourth, app, sidecar); err != nil {
		return err
	}
	return s.reckon(ctx, q, wrong, outbox, first, second, third, fourth)
}

// lookAtDLQ shows what lies in the dead-letter queue and lists how it differs from what was promised.
func (s *stage) lookAtDLQ(q *queues, o *order) (wrong []string, err error) {
	parked, err := q.parked()
	if err != nil {
		return nil, err
	}
	s.screen.title("In the dead-letter queue " + dlq)
	s.screen.parked(parked)
	return brokenParking(parked, o), nil
}

func (s *stage) publish(ctx context.Context, q *queues, orders []*order) error {
	for _, o := range orders {
		if err := q.publish(ctx, o); err != nil {
			return err
		}
		s.screen.line(o.id, "publish", o.story, plain)
	}
	return nil
}

// takeAppAway stops the app, publishes, and brings the app back on its port.
func (s *stage) takeAppAway(ctx context.Context, q *queues, orders []*order, sidecar *follower) error {
	s.screen.line("", "app", "stops", bad)
	if err := s.app.stop(); err != nil {
		return err
	}
	if err := s.publish(ctx, q, orders); err != nil {
		return err
	}
	// Long enough that a sidecar which counted refused connections would have spent several attempts by now.
	back := time.Now().Add(4 * retryDelay)
	err := s.sidecar.await(ctx, "patient", func() bool {
		s.print(orders, sidecar.news())
		return time.Now().After(back)
	})
	if err != nil {
		return err
	}
	app, err := startApp(ctx, s.options, "app-again", port(s.app.address))
	if app != nil {
		s.app = app
	}
	if err == nil {
		s.screen.line("", "app", "is back", good)
	}
	return err
}

// listen reads the app's output.
func (s *stage) listen() *follower { return &follower{child: s.app, parse: appEvent} }

// follow prints what happens to the orders until each is acked or parked.
func (s *stage) follow(ctx context.Context, orders []*order, app, sidecar *follower) error {
	return s.sidecar.await(ctx, "done with every message", func() bool {
		// The sidecar is read first: whatever it settled by now, the app's line about it can be read too.
		settled := sidecar.news()
		s.print(orders, append(app.news(), settled...))
		return !slices.ContainsFunc(orders, func(o *order) bool { return !o.done() })
	})
}

// print writes events down for their orders and prints them in the order in which they happened.
func (s *stage) print(orders []*order, events []event) {
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	for _, e := range events {
		if e.message == "" {
			s.screen.event(e)
		}
		for _, o := range orders {
			if o.id == e.message {
				o.record(e)
				s.screen.event(e)
			}
		}
	}
}

// reckon compares what happened with what was promised; wrong is what differed before.
func (s *stage) reckon(ctx context.Context, q *queues, wrong []string, outbox *emitted, scenes ...[]*order) error {
	s.screen.title("Outcomes")
	for _, scene := range scenes {
		for _, o := range scene {
			broken := o.broken()
			s.screen.verdict(o.id, o.journey(), len(broken) == 0)
			wrong = append(wrong, broken...)
		}
	}
	broken := outbox.broken()
	s.screen.verdict("orders", outbox.sum(), len(broken) == 0)
	wrong = append(wrong, broken...)
	left, err := q.leftover(ctx)
	if err != nil {
		return err
	}
	if wrong = append(wrong, left...); len(wrong) > 0 {
		return errors.New("not as promised:\n  " + strings.Join(wrong, "\n  "))
	}
	return nil
}

// stop ends the sidecar before the app, as a good pod does: what is in flight is still answered.
func (s *stage) stop() error {
	err := s.sidecar.stop()
	if err == nil {
		s.screen.say("\nSIGTERM: the sidecar drained and ended with exit code 0.")
	} else {
		err = fmt.Errorf("%w\n%s", err, s.sidecar.tail())
	}
	return errors.Join(err, s.app.stop())
}
