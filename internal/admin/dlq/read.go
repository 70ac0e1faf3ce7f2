package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"

	"sidecar/internal/deadletter"
	"sidecar/internal/httpguard"
)

const (
	depthTime = 8 * time.Second // less than the listener gives an answer
	// readTime bounds a read: a million messages take minutes. A client that cannot wait closes the connection, or sets
	// scan.
	readTime = 10 * time.Minute
	// answerTime is how long a client may take for an answer that may be long.
	answerTime = time.Minute
	// turnWait is how long a read waits for its turn.
	turnWait = 5 * time.Second

	// maxShown is how much of a body is shown, in bytes.
	maxShown = 64 << 10
	// maxShownTotal is how much of all bodies of a list is shown. Later messages are listed without theirs.
	maxShownTotal = 4 << 20
)

// summary is the part of an answer that says how much was read.
type summary struct {
	Queue    string `json:"queue"`
	Total    int    `json:"total"`    // ready messages at the start
	Scanned  int    `json:"scanned"`  // of those, read
	Matched  int    `json:"matched"`  // of those, matching
	Complete bool   `json:"complete"` // nothing was left out by the bounds
}

func summaryOf(q deadletter.Queues, p deadletter.Progress) summary {
	return summary{q.Name(), p.Total, p.Scanned, p.Matched, p.Scanned >= p.Total}
}

type listed struct {
	deadletter.View
	Body *deadletter.Body `json:"body,omitempty"`
}

// depth serves what show makes of the depths of queues. It asks the broker for no longer than the listener gives an
// answer.
func (a *API) depth(show func(deadletter.Queues, []deadletter.Depth) any) httpguard.Route {
	return httpguard.Get(a.Depths.Limit(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeoutCause(r.Context(), depthTime, errNoAnswer)
		defer cancel()
		queues, err := a.queues(r)
		depths := make([]deadletter.Depth, len(queues))
		for i := 0; i < len(queues) && err == nil; i++ {
			depths[i], err = queues[i].Depth(ctx)
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			refuseError(w, err)
			return
		}
		httpguard.Answer(w, http.StatusOK, show(queues, depths))
	}))
}

// queueState is the state of one queue, or the sums of several.
func (a *API) queueState(queues deadletter.Queues, depths []deadletter.Depth) any {
	s := struct {
		Queue     string     `json:"queue"`
		Ready     int        `json:"ready"`
		Consumers int        `json:"consumers"`
		Operation *Operation `json:"operation,omitempty"`
	}{Queue: queues.Name(), Operation: a.Now()}
	for _, d := range depths {
		s.Ready += d.Ready
		s.Consumers += d.Consumers
	}
	return s
}

func (a *API) listQueues(queues deadletter.Queues, depths []deadletter.Depth) any {
	type queue struct {
		Name      string `json:"name"`
		Messages  int    `json:"messages"` // ready
		Consumers int    `json:"consumers"`
		Service   string `json:"service"`
		Queue     string `json:"queue"` // whose dead letters they are
	}
	list := []queue{}
	for i, q := range queues {
		for _, owner := range q.Owners {
			list = append(list, queue{q.Name(), depths[i].Ready, depths[i].Consumers, a.o.Service, owner.Plan.Queue})
		}
	}
	return map[string][]queue{"queues": list}
}

var (
	errNoAnswer = errors.New("the broker does not answer")
	errTooLong  = errors.New("it took too long: read fewer messages, with scan, or try again later")
)

// readHandler wraps a handler that reads messages: it waits for its turn, is bounded in time, ends with the client, and
// does not run beside an operation. do returns nil when it has answered itself.
func (a *API) readHandler(known parameters, do func(context.Context, readParams) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		l, err := readQuery(r, known)
		if err == nil {
			l.queues, err = a.o.Queues.Of(l.subscription)
			l.scan.Limit = max(l.scan.Limit/max(len(l.queues), 1), min(l.scan.Limit, 1)) // 0: all; else 1 of each or more
		}
		if err != nil {
			refuseError(w, err)
			return
		}
		if l.bodies && httpguard.CallerScope(r) != httpguard.Writer {
			httpguard.Refuse(w, http.StatusForbidden, "", "This token is shown no message bodies.")
			return
		}
		l.w = w
		answerBy(w, time.Time{})
		ctx, cancel := context.WithTimeoutCause(a.ctx, readTime, errTooLong)
		defer cancel()
		defer context.AfterFunc(r.Context(), cancel)()
		v, err := a.inTurn(ctx, func() (any, error) { return do(ctx, l) })
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		answerBy(w, time.Now().Add(answerTime))
		status := http.StatusOK
		if err != nil {
			status = refuseError(w, err)
		}
		if l.bodies { // bodies are logged, because they may hold personal data
			what := cmp.Or(r.PathValue("id"), "list")
			if known.export {
				what = "export"
			}
			a.audit(r, "show bodies", status, "message", what)
		}
		if err == nil && v != nil {
			httpguard.Answer(w, status, v)
		}
	}
}

// inTurn waits for the end of another read. It returns deadletter.ErrInUse while an operation runs.
func (a *API) inTurn(ctx context.Context, do func() (any, error)) (any, error) {
	select {
	case a.Reads <- struct{}{}:
		defer func() { <-a.Reads }()
	case <-time.After(turnWait):
		return nil, fmt.Errorf("%w: too many reads at a time", deadletter.ErrInUse)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	// An operation that begins after this waits for the turn, so none runs beside this read.
	if err := inUse(a.Now()); err != nil {
		return nil, err
	}
	return do()
}

func (a *API) list(ctx context.Context, l readParams) (any, error) {
	messages, left := []listed{}, maxShownTotal
	sum, err := l.queues.Browse(ctx, l.filter, l.scan, func(m *deadletter.Message) error {
		one := listed{View: m.View()}
		if l.bodies && left > 0 {
			one.Body = m.Full(min(maxShown, left)).Body
			left -= len(one.Body.Text)
		}
		messages = append(messages, one)
		return nil
	})
	return struct {
		Summary  summary  `json:"summary"`
		Messages []listed `json:"messages"`
	}{summaryOf(l.queues, sum), messages}, err
}

func (a *API) groups(ctx context.Context, l readParams) (any, error) {
	groups, sum, err := l.queues.Groups(ctx, l.filter, l.scan)
	return struct {
		Summary summary             `json:"summary"`
		Groups  []*deadletter.Group `json:"groups"`
	}{summaryOf(l.queues, sum), groups}, err
}

func (a *API) message(ctx context.Context, l readParams) (any, error) {
	size := 0
	if l.bodies {
		size = maxShown
	}
	m, _, err := l.queues.Find(ctx, l.r.PathValue("id"), size)
	return m, err
}

// export answers with the messages as `sidecar dlq export` writes them. An error in the middle ends the connection: the
// client has a broken transfer, and no file that looks complete. HTTP/1.0 cannot show the difference.
func (a *API) export(ctx context.Context, l readParams) (any, error) {
	if !l.r.ProtoAtLeast(1, 1) {
		return nil, fmt.Errorf("%w: an export needs HTTP/1.1: in HTTP/1.0 a part of it looks complete", deadletter.ErrInvalid)
	}
	q, err := l.queues.Only()
	if err != nil {
		return nil, err
	}
	h, name := l.w.Header(), q.Name()+".jsonl"
	h.Set("Content-Type", "application/jsonl")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	answerBy(l.w, time.Now().Add(readTime)) // also when the client reads nothing
	p, err := q.Export(ctx, l.w, deadletter.Selection{Filter: l.filter, Limit: l.scan.Limit}, nil)
	if err != nil && p.Done > 0 {
		err = cmp.Or(context.Cause(ctx), err)
		a.audit(l.r, "show bodies", http.StatusOK, "message", "export", "error", httpguard.Sentence(err))
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		h.Del("Content-Disposition")
	}
	return nil, err
}

// answerBy bounds the answer: the client has to take it in time. The zero time removes the listener's own bound, for an
// answer that has others. Without support for deadlines none was set.
func answerBy(w http.ResponseWriter, at time.Time) {
	_ = http.NewResponseController(w).SetWriteDeadline(at)
}
