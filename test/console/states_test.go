package console

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/testkit/prometheus"
)

// states are the rows of the table in docs/operations.md, which says what each surface shows, and what brings the
// state about.
var states = map[string]func(*scene){
	"consuming": func(sc *scene) { sc.run() },
	"only sends": func(sc *scene) {
		sc.with("CONSUME", "off", "PUBLISH_ADDR", "127.0.0.1:0").start()
	},
	"broker away": func(sc *scene) {
		sc.with("AMQP_URL", "amqp://"+strings.TrimPrefix(apptest.Refused(sc.t), "http://")).start()
	},
	"broker blocks": func(sc *scene) {
		sc.run()
		sc.t.Cleanup(sc.node.Alarm())
	},
	"app away": func(sc *scene) { sc.with("APP_URL", apptest.Refused(sc.t)).start() },
	"app not well": func(sc *scene) {
		app := apptest.Listen(sc.t, apptest.Answer(apptest.Status(503)))
		sc.with("APP_URL", app.URL, "APP_HEALTH_PATH", "/h").start()
	},
	"app fails everything": func(sc *scene) {
		sc.everything(apptest.Status(500))
		sc.run().publish("order.created", messages(300)...) // each trial parks ten: so many outlast a slow browser
	},
	"app refuses everything": func(sc *scene) {
		sc.everything(apptest.Status(404))
		sc.run().publish("order.created", messages(20)...)
	},
	"app redirects everything": func(sc *scene) {
		sc.everything(apptest.Full(307, "", "Location: https://login.example/sign-in?next=secret"))
		sc.run().publish("order.created", messages(20)...)
	},
	"app asked for time": func(sc *scene) {
		sc.everything(apptest.Full(429, "", "Retry-After: 600"))
		sc.run().publish("order.created", messages(1)...)
	},
	"paused by an operator": func(sc *scene) {
		sc.run().call("POST", "/pause", "")
	},
	"queue cannot be consumed": func(sc *scene) {
		sc.with("TOPOLOGY_MODE", "none").start()
	},
	"topology does not fit": func(sc *scene) { sc.with("TOPOLOGY_MODE", "verify").start() },
	"one message cannot be parked": func(sc *scene) {
		sc.full().publish("order.created", messages(2)...)
	},
	"nothing can be parked": func(sc *scene) {
		sc.full("PREFETCH", "2", "CONCURRENCY", "1").publish("order.created", messages(5)...)
	},
	"order waits": func(sc *scene) {
		sc.everything(apptest.Status(500))
		sc.with("ORDER_BY", "routing-key", "PREFETCH", "2", "CONCURRENCY", "1", "MAX_RETRIES", "9", "RETRY_DELAY", "1m")
		sc.run().publish("order.created", messages(5)...)
	},
	"service queue was deleted": func(sc *scene) { sc.run().deleted(sc.queue()) },
	"retry queue was deleted":   func(sc *scene) { sc.run().deleted(sc.prefix() + ".retry-queue." + sc.name) },
	"dead-letter queue was deleted": func(sc *scene) {
		sc.run().deleted(sc.dlq())
	},
	"exchange was deleted": func(sc *scene) {
		must.Do(sc.t, brokertest.Channel(sc.t, sc.run().url()).ExchangeDelete(sc.exchange(), false, false))
	},
	"outbox without database": func(sc *scene) {
		host := strings.TrimPrefix(strings.TrimSuffix(apptest.Refused(sc.t), "/"), "http://")
		sc.with("OUTBOX_DSN", "postgres://u@"+host+"/shop?sslmode=disable").run()
	},
	"drained": func(sc *scene) { sc.run().call("POST", "/drain", "") },
}

// TestStates: in each state that docs/operations.md lists, the API, the page, the log, the metrics and the alerts say
// what its table says, in the same words.
func TestStates(t *testing.T) {
	t.Parallel()
	rules := prometheus.Impatient(t, "../../deploy/helm/amqp-sidecar/files/alerts.yaml")
	p := prometheus.Start(t, rules)
	rows := documented(t)
	for name := range states {
		if rows[name] == nil {
			t.Errorf("docs/operations.md has no state %q", name)
		}
	}
	for name, row := range rows {
		bring := states[name]
		if bring == nil {
			t.Errorf("docs/operations.md has the state %q, which no test brings about", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var node *brokertest.Node
			if name == "broker blocks" {
				node = brokertest.OwnNode(t)
			}
			sc := prepareScene(t)
			sc.name = "states-" + strings.ReplaceAll(name, " ", "-") // the job and the queue of an alert
			sc.env["SIDECAR_SERVICE"], sc.node = sc.name, node
			bring(sc)
			sc.agrees(p, row)
		})
	}
}

// state is a row of the table.
type state struct {
	status, page, log, metric []string // the codes of the cell; of the page all of it
	alert                     string   // "" for none
}

// documented reads the table of docs/operations.md.
func documented(t *testing.T) map[string]*state {
	t.Helper()
	text := string(must.Get(os.ReadFile("../../docs/operations.md"))(t))
	_, table, _ := strings.Cut(text, "| state | `GET /status` |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string]*state{}
	code := regexp.MustCompile("`([^`]*)`")
	codes := func(cell string) (found []string) {
		for _, m := range code.FindAllStringSubmatch(cell, -1) {
			found = append(found, m[1])
		}
		return found
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 6 || strings.HasPrefix(cells[0], "---") {
			continue
		}
		row := &state{status: codes(cells[1]), page: codes(cells[2]), log: codes(cells[3]), metric: codes(cells[4])}
		if m := regexp.MustCompile(`\[(\w+)\]`).FindStringSubmatch(cells[5]); m != nil {
			row.alert = m[1]
		}
		rows[strings.TrimSpace(cells[0])] = row
	}
	if len(rows) < 10 {
		t.Fatalf("the table of states has %d rows: has its form changed?", len(rows))
	}
	return rows
}

// agrees waits until each surface shows the state.
func (sc *scene) agrees(p *prometheus.Server, row *state) {
	t := sc.t
	t.Helper()
	p.Scrape(sc.admin, map[string]string{"job": sc.name})
	eventually(t, "GET /status has "+strings.Join(row.status, " and "), func() bool {
		var status json.RawMessage
		sc.get("/status", &status)
		return holds(string(status), row.status)
	})
	eventually(t, "a log line with "+strings.Join(row.log, " and "), func() bool { return len(sc.log.Lines(row.log...)) > 0 })
	for _, query := range row.metric {
		eventually(t, query, func() bool {
			for _, s := range p.Now(query) {
				if s.Metric["instance"] == sc.admin {
					return true
				}
			}
			return false
		})
	}
	sc.alerted(p, row.alert)
	scenes <- struct{}{}
	defer func() { <-scenes }()
	b := sc.open()
	b.until("#state-title", row.page[0])
	b.when("the tone is "+row.page[1], `document.getElementById("state").dataset.tone === `+quote(row.page[1]))
	for _, text := range row.page[2:] {
		b.until("#state", text)
	}
}

// alerted waits for the alert of a state. Where there is none, no alert of the same sidecar fires once Prometheus has
// had the time to evaluate each rule over its longest window.
func (sc *scene) alerted(p *prometheus.Server, alert string) {
	sc.t.Helper()
	firing := func() (names []string) {
		for _, s := range p.Now(`ALERTS{alertstate="firing"}`) {
			if s.Metric["job"] == sc.name || s.Metric["queue"] == sc.queue() || s.Metric["queue"] == sc.dlq() {
				names = append(names, s.Metric["alertname"])
			}
		}
		return names
	}
	if alert == "" {
		since := time.Now()
		eventually(sc.t, "20 evaluations", func() bool {
			if names := firing(); len(names) > 0 {
				sc.t.Fatalf("%v fires in a state without an alert", names)
			}
			return len(p.Now(`count_over_time(up{instance="`+sc.admin+`"}[1m]) >= 20`)) > 0 || time.Since(since) > patience
		})
		return
	}
	eventually(sc.t, "the alert "+alert+" fires", func() bool { return slices.Contains(firing(), alert) })
}

func holds(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// everything makes the app answer every message alike.
func (sc *scene) everything(raw string) {
	sc.app.Otherwise(func(*apptest.Request) apptest.Reply { return apptest.Say(raw) })
}

// full runs a sidecar whose dead-letter queue takes no message.
func (sc *scene) full(pairs ...string) *scene {
	sc.everything(apptest.Status(500))
	brokertest.Queue(sc.t, sc.url(), sc.dlq(), amqp.Table{"x-max-length": int32(0), "x-overflow": "reject-publish"})
	return sc.with(pairs...).run()
}

// deleted deletes a queue of a sidecar that consumes.
func (sc *scene) deleted(queue string) {
	must.Get(brokertest.Channel(sc.t, sc.url()).QueueDelete(queue, false, false, false))(sc.t)
}

func messages(n int) (all []amqp.Publishing) {
	for _, id := range numbered("order", n) {
		all = append(all, message(id))
	}
	return all
}
