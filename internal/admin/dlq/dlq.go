// Package dlq serves the paths of the control listener for the dead-letter queue: it lists, counts and shows messages,
// and runs redrives and discards one at a time. It decides nothing about messages: package deadletter does.
package dlq

import (
	"errors"
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
	*Operations

	o         Options
	Depths    httpguard.Slots // of questions for the depth
	Reads     chan struct{}   // holds a value while a read is under way
	BeginTime time.Duration   // see beginTime
}

// New returns the API of a queue.
func New(o Options) *API {
	return &API{
		o: o, Depths: make(httpguard.Slots, 4), Reads: make(chan struct{}, 1), BeginTime: beginTime,
		Operations: newOperations(o.Logger),
	}
}

func (a *API) audit(r *http.Request, action string, status int, more ...any) {
	httpguard.Audit(a.o.Logger, r, action, status, more...)
}

// Routes returns the routes of the dead-letter queue. Some contain the name of the queue as url.PathEscape writes it,
// so that another name is an unknown path, and the broker is not asked about it.
func (a *API) Routes() httpguard.Routes {
	conditions := parameters{maxLimit: maxList, defaultLimit: defaultList, scan: true, conditions: true}
	bodies := conditions
	bodies.body = true
	export := parameters{maxLimit: maxActionLimit, conditions: true, export: true}
	t := httpguard.Routes{
		"/dlq":                        a.depth(a.queueState),
		"/dlq/messages":               httpguard.Get(a.readHandler(conditions, a.list)),
		"/dlq/messages/{id}":          httpguard.Get(a.readHandler(parameters{body: true}, a.message)),
		"/dlq/groups":                 httpguard.Get(a.readHandler(parameters{scan: true, conditions: true}, a.groups)),
		"/dlq/export":                 httpguard.Get(a.readHandler(export, a.export)),
		"/dlq/redrive":                httpguard.Post(a.redrive),
		"/dlq/discard":                httpguard.Post(a.discard),
		"/dlq/operations":             httpguard.Get(a.listOperations),
		"/dlq/operations/{id}":        httpguard.Get(a.showOperation),
		"/dlq/operations/{id}/cancel": httpguard.Post(a.cancelOperation),
		"/admin/dlq/queues":           a.depth(a.queues),
	}
	if a.o.Queue == nil {
		for path, route := range t {
			t[path] = httpguard.Route{Method: route.Method, Handler: noQueue}
		}
		return t
	}
	queue := "/admin/dlq/queues/" + url.PathEscape(a.o.Queue.Name())
	t[queue+"/messages"] = httpguard.Get(a.readHandler(bodies, a.list))
	t[queue+"/re-drive"] = httpguard.Post(a.redriveNow)
	return t
}

func noQueue(w http.ResponseWriter, _ *http.Request) { refuseError(w, deadletter.ErrNoQueue) }

// statusOf says what an error of package deadletter is in HTTP. What it does not name is trouble with the broker, which
// passes.
func statusOf(err error) int {
	switch {
	case errors.Is(err, deadletter.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, deadletter.ErrNoQueue), errors.Is(err, deadletter.ErrMissing),
		errors.Is(err, deadletter.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, deadletter.ErrInUse), errors.Is(err, deadletter.ErrUnsafe):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

// refuseError answers with the problem that err is and returns its status.
func refuseError(w http.ResponseWriter, err error) int {
	status := statusOf(err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	refuse(w, status, httpguard.Sentence(err))
	return status
}

// refuse answers with a problem document. Of the request, its detail repeats nothing but names and values of a filter,
// quoted and cut.
func refuse(w http.ResponseWriter, status int, detail string) {
	httpguard.Refuse(w, httpguard.NewProblem(status, "", detail))
}

func answer(w http.ResponseWriter, status int, v any) {
	httpguard.Write(w, status, "application/json", v)
}
