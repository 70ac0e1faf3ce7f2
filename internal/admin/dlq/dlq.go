// Package dlq serves the paths of the control listener for dead-letter queues: it lists, counts and shows messages, and
// runs redrives and discards one at a time. It decides nothing about messages: package deadletter does.
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
	Queues  deadletter.Queues // none means that no topology has a dead-letter queue
	Service string            // of the sidecar
	Logger  *slog.Logger
}

// API serves the dead-letter queues. It is safe for concurrent use.
type API struct {
	*Operations

	o         Options
	Depths    httpguard.Slots // of questions for the depth
	Reads     chan struct{}   // holds a value while a read is under way
	BeginTime time.Duration   // see beginTime
}

// New returns the API of some queues.
func New(o Options) *API {
	return &API{
		o: o, Depths: make(httpguard.Slots, 4), Reads: make(chan struct{}, 1), BeginTime: beginTime,
		Operations: newOperations(o.Logger),
	}
}

func (a *API) audit(r *http.Request, action string, status int, more ...any) {
	httpguard.Audit(a.o.Logger, r, action, status, more...)
}

// queues returns the queues that a request is for: of the subscription that the query names, or all. An error is
// deadletter.ErrInvalid or deadletter.ErrNoSubscription.
func (a *API) queues(r *http.Request) (deadletter.Queues, error) {
	q, err := readQuery(r, parameters{})
	if err != nil {
		return nil, err
	}
	return a.o.Queues.Of(q.subscription)
}

// queue returns the queue that a request is for; deadletter.ErrInvalid if there are several.
func (a *API) queue(r *http.Request) (*deadletter.Queue, error) {
	all, err := a.queues(r)
	if err != nil {
		return nil, err
	}
	return all.Only()
}

// Routes returns the routes of the dead-letter queues. Some contain the name of a queue as url.PathEscape writes it, so
// that another name is an unknown path, and the broker is not asked about it.
func (a *API) Routes() httpguard.Routes {
	conditions := parameters{maxLimit: maxList, defaultLimit: defaultList, scan: true, conditions: true}
	bodies := conditions
	bodies.body = true
	export := parameters{maxLimit: maxExport, conditions: true, export: true}
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
		"/admin/dlq/queues":           a.depth(a.listQueues),
	}
	if len(a.o.Queues) == 0 {
		for path, route := range t {
			t[path] = httpguard.Route{Method: route.Method, Handler: noQueue}
		}
		return t
	}
	for _, q := range a.o.Queues {
		one, path := *a, "/admin/dlq/queues/"+url.PathEscape(q.Name())
		one.o.Queues = deadletter.Queues{q}
		t[path+"/messages"] = httpguard.Get(one.readHandler(bodies, one.list))
		t[path+"/re-drive"] = httpguard.Post(one.redriveNow)
	}
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
		errors.Is(err, deadletter.ErrNotFound), errors.Is(err, deadletter.ErrNoSubscription):
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
	httpguard.Refuse(w, status, "", httpguard.Sentence(err))
	return status
}
