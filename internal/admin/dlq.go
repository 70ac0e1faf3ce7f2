package admin

import (
	"net/http"
	"net/url"
	"time"

	"sidecar/internal/deadletter"
)

// answerTime is how long a client may take for an answer that may be long.
const answerTime = time.Minute

// deadLetterRoutes are those of the dead-letter queue. The name of the queue stands in some of them as url.PathEscape
// writes it, so that another one is just another path, and nobody asks the broker about it.
func (s *Server) deadLetterRoutes() routes {
	conditions := parameters{limit: true, scan: true, conditions: true}
	bodies := conditions
	bodies.body = true
	t := routes{
		"/dlq":                        get(s.depths.limit(s.queueState)),
		"/dlq/messages":               get(s.look(conditions, s.list)),
		"/dlq/messages/{id}":          get(s.look(parameters{body: true}, s.message)),
		"/dlq/groups":                 get(s.look(parameters{scan: true, conditions: true}, s.groups)),
		"/dlq/redrive":                post(s.redrive),
		"/dlq/discard":                post(s.discard),
		"/dlq/purge":                  post(s.purge),
		"/dlq/operations":             get(s.listOperations),
		"/dlq/operations/{id}":        get(s.showOperation),
		"/dlq/operations/{id}/cancel": post(s.cancelOperation),
		"/admin/dlq/queues":           get(s.depths.limit(s.queues)),
	}
	if s.o.DeadLetters == nil {
		for _, byMethod := range t {
			for method := range byMethod {
				byMethod[method] = noQueue
			}
		}
		return t
	}
	queue := "/admin/dlq/queues/" + url.PathEscape(s.o.DeadLetters.Name())
	t[queue+"/messages"] = get(s.look(bodies, s.list))
	t[queue+"/re-drive"] = post(s.redriveNow)
	return t
}

func noQueue(w http.ResponseWriter, _ *http.Request) { refuseError(w, deadletter.ErrNoQueue) }
