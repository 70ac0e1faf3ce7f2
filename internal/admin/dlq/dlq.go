// Package dlq is what the control listener does with the dead-letter queue: it lists, counts and shows messages, and
// runs redrives and discards one at a time. It decides nothing about messages: that is package deadletter.
package dlq

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"sidecar/internal/deadletter"
	"sidecar/internal/httpguard"
)

// Options is what an API needs.
type Options struct {
	Queue   *deadletter.Queue // nil means the topology has no dead-letter queue
	Service string            // of the sidecar
	Main    string            // the queue whose dead letters they are
	Logger  *slog.Logger
}

// API serves one dead-letter queue. It is safe for concurrent use.
type API struct {
	o          Options
	Depths     httpguard.Slots // of questions for the depth
	Looks      chan struct{}   // holds one value for each read that is under way
	Operations *Operations
}

// New returns the API of a queue.
func New(o Options) *API {
	return &API{o: o, Depths: make(httpguard.Slots, 4), Looks: make(chan struct{}, 2), Operations: newOperations(o.Logger)}
}

// Stop refuses new operations and ends the running one at a safe point. Reads end.
func (a *API) Stop() { a.Operations.stop() }

// Wait returns when the operation has ended that ran at Stop, or with ctx.
func (a *API) Wait(ctx context.Context) { a.Operations.wait(ctx) }

func (a *API) audit(r *http.Request, action string, status int, more ...any) {
	httpguard.Audit(a.o.Logger, r, action, status, more...)
}

// answerTime is how long a client may take for an answer that may be long.
const answerTime = time.Minute

// Routes returns the routes of the dead-letter queue. Some contain the name of the queue as url.PathEscape writes it,
// so that another name is an unknown path, and the broker is not asked about it.
func (a *API) Routes() httpguard.Routes {
	conditions := parameters{limit: true, scan: true, conditions: true}
	bodies := conditions
	bodies.body = true
	t := httpguard.Routes{
		"/dlq":                        httpguard.Get(a.Depths.Limit(a.queueState)),
		"/dlq/messages":               httpguard.Get(a.reading(conditions, a.list)),
		"/dlq/messages/{id}":          httpguard.Get(a.reading(parameters{body: true}, a.message)),
		"/dlq/groups":                 httpguard.Get(a.reading(parameters{scan: true, conditions: true}, a.groups)),
		"/dlq/redrive":                httpguard.Post(a.redrive),
		"/dlq/discard":                httpguard.Post(a.discard),
		"/dlq/operations":             httpguard.Get(a.listOperations),
		"/dlq/operations/{id}":        httpguard.Get(a.showOperation),
		"/dlq/operations/{id}/cancel": httpguard.Post(a.cancelOperation),
		"/admin/dlq/queues":           httpguard.Get(a.Depths.Limit(a.queues)),
	}
	if a.o.Queue == nil {
		for path, route := range t {
			t[path] = httpguard.Route{Method: route.Method, Handler: noQueue}
		}
		return t
	}
	queue := "/admin/dlq/queues/" + url.PathEscape(a.o.Queue.Name())
	t[queue+"/messages"] = httpguard.Get(a.reading(bodies, a.list))
	t[queue+"/re-drive"] = httpguard.Post(a.redriveNow)
	return t
}

func noQueue(w http.ResponseWriter, _ *http.Request) { refuseError(w, deadletter.ErrNoQueue) }
