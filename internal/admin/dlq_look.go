package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sidecar/internal/deadletter"
)

const (
	depthTime = requestTimeout - 2*time.Second
	// lookTime bounds a look: a million messages take minutes. Who does not want to wait leaves, or says scan.
	lookTime = 10 * time.Minute
	// turnWait is how long a look waits for its turn.
	turnWait = 5 * time.Second

	// maxShown is how much of a body is shown, in bytes.
	maxShown = 64 << 10
	// maxShownTotal is how much of all bodies of a list is shown. Later messages are listed without theirs.
	maxShownTotal = 4 << 20
)

// summary says what a look has covered.
type summary struct {
	deadletter.Summary
	Complete bool `json:"complete"` // nothing was left out by the bounds
}

func summarise(s deadletter.Summary) summary { return summary{s, s.Complete()} }

// listed is a message of a list.
type listed struct {
	deadletter.View
	Body *deadletter.Body `json:"body,omitempty"`
}

// depth asks the broker, for no longer than the listener gives an answer. It has answered itself when ok is false.
func (s *Server) depth(w http.ResponseWriter, r *http.Request) (d deadletter.Depth, ok bool) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), depthTime, errNoAnswer)
	defer cancel()
	d, err := s.o.DeadLetters.Depth(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		refuseError(w, err)
	}
	return d, err == nil
}

func (s *Server) queueState(w http.ResponseWriter, r *http.Request) {
	d, ok := s.depth(w, r)
	if !ok {
		return
	}
	state := struct {
		Queue     string     `json:"queue"`
		Ready     int        `json:"ready"`
		Consumers int        `json:"consumers"`
		Operation *Operation `json:"operation,omitempty"`
	}{s.o.DeadLetters.Name(), d.Ready, d.Consumers, nil}
	if op, runs := s.operations.now(); runs {
		state.Operation = &op
	}
	answer(w, http.StatusOK, state)
}

var (
	errNoAnswer = errors.New("the broker does not answer")
	errTooLong  = errors.New("it took too long: look at fewer messages, with scan, or try again later")
)

// look wraps what reads messages: it waits its turn, is bounded in time, ends with the client, and does not run beside an
// operation.
func (s *Server) look(known parameters, do func(context.Context, *http.Request, looking) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		l, err := readQuery(r, known)
		if err != nil {
			refuseError(w, err)
			return
		}
		if l.bodies && callerScope(r) != writer {
			refuse(w, http.StatusForbidden, "This token is shown no message bodies.")
			return
		}
		s.unhurried(w)
		ctx, cancel := context.WithTimeoutCause(r.Context(), lookTime, errTooLong)
		defer cancel()
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		defer context.AfterFunc(s.operations.ctx, func() { stop(errStopping) })()
		v, err := s.inTurn(ctx, func() (any, error) { return do(ctx, r, l) })
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		s.hurried(w)
		status := http.StatusOK
		if err != nil {
			status = refuseError(w, err)
		}
		if l.bodies { // somebody has seen what others wrote
			s.audit(r, "show bodies", status, "message", cmp.Or(r.PathValue("id"), "list"))
		}
		if err == nil {
			answer(w, status, v)
		}
	}
}

// inTurn waits for one of the turns, unless that is for an operation to end.
func (s *Server) inTurn(ctx context.Context, do func() (any, error)) (any, error) {
	if err := s.operations.busy(); err != nil {
		return nil, err
	}
	wait := time.NewTimer(turnWait)
	defer wait.Stop()
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-wait.C:
		return nil, fmt.Errorf("%w: others look into it", deadletter.ErrInUse)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	// An operation that begins from now on waits for the turns, so there is none beside us.
	if err := s.operations.busy(); err != nil {
		return nil, err
	}
	return do()
}

func (s *Server) list(ctx context.Context, _ *http.Request, l looking) (any, error) {
	messages, left := []listed{}, maxShownTotal
	sum, err := s.o.DeadLetters.Browse(ctx, l.filter, l.scan, func(m *deadletter.Message) error {
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
	}{summarise(sum), messages}, err
}

func (s *Server) groups(ctx context.Context, _ *http.Request, l looking) (any, error) {
	groups, sum, err := s.o.DeadLetters.Groups(ctx, l.filter, l.scan)
	if groups == nil {
		groups = []deadletter.Group{}
	}
	return struct {
		Summary summary            `json:"summary"`
		Groups  []deadletter.Group `json:"groups"`
	}{summarise(sum), groups}, err
}

func (s *Server) message(ctx context.Context, r *http.Request, l looking) (any, error) {
	size := 0
	if l.bodies {
		size = maxShown
	}
	m, _, err := s.o.DeadLetters.Find(ctx, r.PathValue("id"), size)
	return m, err
}

// unhurried takes the listener's bound off an answer to a request that has bounds of its own. Where deadlines are not
// supported there is none.
func (s *Server) unhurried(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
}

// hurried bounds the answer: the client has to take it in time.
func (s *Server) hurried(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
}
