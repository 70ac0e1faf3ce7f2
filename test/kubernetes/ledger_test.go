//go:build kubernetes

package kubernetes

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// ledgers is the collector that the apps in the pods report to, one ledger for each test.
var ledgers collector

type collector struct {
	addr string

	mu sync.Mutex
	of map[string]*ledger
}

// event is what an app reports. Events are in the order in which they came: an app waits for the answer before it
// goes on.
type event struct {
	Kind     string    `json:"kind"`
	ID       string    `json:"id"`
	Pod      string    `json:"pod"`
	Boot     string    `json:"boot"`
	Retries  string    `json:"retries"`
	Again    string    `json:"again"`
	Inflight int64     `json:"inflight"`
	Sidecar  string    `json:"sidecar"`
	At       time.Time `json:"-"`
}

// ledger is what the apps of one test did.
type ledger struct {
	url string

	mu     sync.Mutex
	events []event
}

func (c *collector) listen() error {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	c.addr, c.of = net.JoinHostPort(env.host, port), map[string]*ledger{}
	go func() { panic(http.Serve(l, c)) }()
	return nil
}

func (c *collector) open(name string) *ledger {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &ledger{url: "http://" + c.addr + "/" + name}
	c.of[name] = l
	return l
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	l := c.of[strings.TrimPrefix(r.URL.Path, "/")]
	c.mu.Unlock()
	var e event
	if l == nil || json.NewDecoder(r.Body).Decode(&e) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	e.At = time.Now()
	l.events = append(l.events, e)
	l.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// all returns the events of these kinds, in their order; of all kinds when none is named.
func (l *ledger) all(kinds ...string) []event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []event
	for _, e := range l.events {
		if len(kinds) == 0 || slices.Contains(kinds, e.Kind) {
			found = append(found, e)
		}
	}
	return found
}

// count returns how many events of a kind there are for each message.
func (l *ledger) count(kind string) map[string]int {
	n := map[string]int{}
	for _, e := range l.all(kind) {
		n[e.ID]++
	}
	return n
}

// waitHandled waits until every one of these messages was handled at least once.
func (l *ledger) waitHandled(t testing.TB, ids ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d messages handled", len(ids)), func() error {
		done := l.count("end")
		var rest []string
		for _, id := range ids {
			if done[id] == 0 {
				rest = append(rest, id)
			}
		}
		if len(rest) > 0 {
			return fmt.Errorf("%d are not, among them %s", len(rest), strings.Join(rest[:min(len(rest), 5)], " "))
		}
		return nil
	})
}

// exactlyOnce: each of these messages reached an app once and was handled once, and no retry was counted. The broker
// may say "redelivered" of one that a sidecar had taken and gave back before an app saw it.
func (l *ledger) exactlyOnce(t testing.TB, ids ...string) {
	t.Helper()
	begun, ended := l.count("begin"), l.count("end")
	for _, id := range ids {
		if begun[id] != 1 || ended[id] != 1 {
			t.Errorf("message %s was begun %d times and handled %d times", id, begun[id], ended[id])
		}
		delete(begun, id)
	}
	for id, n := range begun {
		t.Errorf("message %s, which was never published, came %d times", id, n)
	}
	for _, e := range l.all("begin") {
		if e.Retries != "0" {
			t.Errorf("message %s came with %s retries", e.ID, e.Retries)
		}
	}
}
