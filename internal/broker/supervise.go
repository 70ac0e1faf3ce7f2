package broker

import (
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/sethvargo/go-retry"
	"golang.org/x/sync/errgroup"
)

const (
	backoffLimit = 10 * time.Second

	// authFactor makes the pauses longer after a refused password: the password has to be changed, and too many tries
	// lock accounts.
	authFactor = 3

	// credentialsPoll is how often the credentials are compared with those that were refused.
	credentialsPoll = time.Second

	// steady is how long a session must have lived for the backoff to begin anew. It is short, because a broker that
	// restarts lets some connect and throws them out a moment later.
	steady = time.Second
)

// Serve uses a session until its context ends, which it does when the session has ended (with the reason as its cause)
// or need not be up any more. nil: there is nothing left to do. Another error on a session that is up is about a
// channel, or about one queue.
type Serve func(ctx context.Context, s *Session) error

// Supervise keeps a session up: it dials until one is established, calls every serve with it, side by side, closes it
// when all have returned, and begins again, with a growing random pause, for ever. A serve that returns an error while
// the session is up is called again with the same session, after such a pause, and does not disturb the others. When
// ctx ends, the session stays usable until every serve returns, for closeTimeout at most, which includes closing it at
// the broker.
//
// It returns nil when each serve returned nil on a session that is still up, and the cause of ctx when ctx ended.
// Nothing the broker does makes it return: wrong credentials may be corrected, and a broker that is down may be started
// again.
func Supervise(ctx context.Context, d *Dialer, serves ...Serve) error {
	link := d.metrics.addLink(d.o.Alarm)
	defer d.metrics.removeLink(link)
	backoff := newBackoff(d.o.Backoff)
	for {
		credentials := d.credentials()
		lasted, err := superviseOnce(ctx, d, link, serves)
		if ctx.Err() != nil {
			d.failure.Store(nil) // nothing fails
			return context.Cause(ctx)
		}
		if err == nil {
			return nil
		}
		why, pause, log := d.lost(err, lasted, &backoff)
		failure := func() error { return err }
		d.failure.Store(&failure)
		if lasted > 0 { // else Dial has logged it
			d.trouble("session"+string(why), func(suppressed int) {
				log.Warn("broker session over", "suppressed", suppressed)
			})
		}
		if why == causeAuth || why == causeVhost || why == causeConfig {
			d.waitUnlessChanged(ctx, pause, credentials)
		} else {
			sleep(ctx, pause)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Failure says why the last session of Supervise has ended, or why there is none, in the broker's words where it gave
// any; "" while that session is up.
func (d *Dialer) Failure() string {
	if failure := d.failure.Load(); failure != nil {
		if err := (*failure)(); err != nil {
			return err.Error()
		}
	}
	return ""
}

// superviseOnce returns nil only when each serve returned nil on a session that was still up. lasted is how long the
// session was up.
func superviseOnce(ctx context.Context, d *Dialer, link *link, serves []Serve) (lasted time.Duration, err error) {
	s, err := d.Dial(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	failure := s.Err
	d.failure.Store(&failure)
	defer func(since time.Time) { lasted = time.Since(since) }(time.Now())
	d.metrics.setLink(link, s)
	defer d.metrics.setLink(link, nil)

	// It has ended whenever an error of the session can be seen: the end of s.ctx is that of its children at once.
	serving, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		cancel(context.Cause(ctx))
		time.AfterFunc(d.o.closeTimeout, s.Kill)
	})()
	var group errgroup.Group
	for _, serve := range serves {
		group.Go(func() error { return d.keep(serving, s, serve) })
	}
	err = group.Wait()
	if ended := s.Err(); ended != nil {
		return 0, ended // whatever serve returned
	}
	return 0, err
}

// keep calls serve until it returns nil or ctx ends.
func (d *Dialer) keep(ctx context.Context, s *Session, serve Serve) error {
	backoff := newBackoff(d.o.Backoff)
	for {
		begun := time.Now()
		err := serve(ctx, s)
		if err == nil || ctx.Err() != nil {
			return err
		}
		_, pause, log := d.lost(err, time.Since(begun), &backoff)
		log.Warn("broker channel over")
		if sleep(ctx, pause); ctx.Err() != nil {
			return err
		}
	}
}

// newBackoff doubles from first to ten seconds and takes a random part of that, so that the replicas do not all connect
// at the same moment after an outage of the broker.
func newBackoff(first time.Duration) retry.Backoff {
	return retry.WithFullJitter(retry.WithCappedDuration(backoffLimit, retry.NewExponential(first)))
}

// lost counts the end of a session, or of its use, that has lasted so long. It returns the cause, the pause before the
// next one, and what to log the end with.
func (d *Dialer) lost(err error, lasted time.Duration, backoff *retry.Backoff) (why cause, pause time.Duration,
	log *slog.Logger) {
	why = causeOf(err)
	d.metrics.reconnect(why)
	if lasted > d.o.steady {
		*backoff = newBackoff(d.o.Backoff)
	}
	pause, _ = (*backoff).Next()
	if why == causeAuth {
		pause *= authFactor
	}
	return why, pause, d.o.Logger.With("connection", d.o.Name, "cause", string(why), "error", err,
		"retry_in", pause.Round(time.Millisecond).String())
}

// waitUnlessChanged waits for at most pause: it ends as soon as the credentials differ from those that were refused.
// A secret that is rotated a moment too late must not cost the pause that protects the account.
func (d *Dialer) waitUnlessChanged(ctx context.Context, pause time.Duration, refused []target) {
	for ; pause > 0 && ctx.Err() == nil && reflect.DeepEqual(d.credentials(), refused); pause -= d.o.credentialsPoll {
		sleep(ctx, min(pause, d.o.credentialsPoll))
	}
}

// sleep ends when ctx does.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
