// The program batches is an app behind the sidecar that takes messages in batches. Standard library only.
//
//	usage: batches [PORT]      default 8080, 0 takes a free one; listens on 127.0.0.1 only
//
// The sidecar needs SIDECAR_BATCH_SIZE, for example 100. To try it: an order without pieces is parked, and for a
// message with the header closed=2 the warehouse is closed for the first two attempts.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// item is a line of a batch: one message.
type item struct {
	MessageID  string `json:"message_id"`
	Body       json.RawMessage
	BodyBase64 []byte `json:"body_base64"`
	Headers    struct{ Closed string }
	Delivery   struct{ Attempt int }
}

// content decodes the body. JSON is part of the line, unless it has line feeds; other bodies are text or base64.
func (m item) content(v any) error {
	body := []byte(m.Body)
	var text string
	if m.Body == nil {
		body = m.BodyBase64
	} else if json.Unmarshal(m.Body, &text) == nil {
		body = []byte(text)
	}
	return json.Unmarshal(body, v)
}

// verdict is a line of the answer. Index is the place in the batch, because an id may be missing or there twice.
type verdict struct {
	Index       int    `json:"index"`
	Status      int    `json:"status,omitempty"`
	Disposition string `json:"disposition,omitempty"`
	RetryAfter  int    `json:"retry_after,omitempty"` // seconds
	Reason      string `json:"reason,omitempty"`
}

type app struct {
	mu sync.Mutex
	// Delivery is at least once. A real app has both in its database, and one transaction for a batch with a savepoint
	// for each message.
	done     map[string]bool
	reserved int
}

// reserve does the work of one message, and returns false with a verdict if it failed.
func (a *app) reserve(m item) (v verdict, ok bool) {
	if m.MessageID != "" && a.done[m.MessageID] {
		return v, true
	}
	var order struct{ Pieces int }
	if err := m.content(&order); err != nil {
		return verdict{Status: http.StatusInternalServerError, Reason: err.Error()}, false
	}
	if order.Pieces < 1 {
		return verdict{Disposition: "park", Reason: "an order without pieces"}, false
	}
	if closed, _ := strconv.Atoi(m.Headers.Closed); m.Delivery.Attempt <= closed {
		return verdict{Status: http.StatusServiceUnavailable, Reason: "the warehouse is closed"}, false
	}
	a.reserved += order.Pieces
	a.done[m.MessageID] = true
	return v, true
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var answer bytes.Buffer
	items, verdicts := json.NewDecoder(r.Body), json.NewEncoder(&answer)
	n, failed := 0, 0
	for ; items.More(); n++ { // once for a message that comes alone
		var m item
		if err := items.Decode(&m); err != nil {
			// The status of the response is for the batch: all of its messages come again, each in a POST of its own.
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if v, ok := a.reserve(m); !ok { // what is not named in the answer is done
			v.Index = n
			_ = verdicts.Encode(v)
			failed++
		}
	}
	fmt.Printf("%d messages, %d failed, %d pieces reserved\n", n, failed, a.reserved)
	w.Header().Set("Content-Type", "application/jsonl")
	_, _ = w.Write(answer.Bytes())
}

func main() {
	port := "8080"
	if len(os.Args) > 1 {
		port = os.Args[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr())
	server := &http.Server{Handler: &app{done: map[string]bool{}}, ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan struct{})
	go func() {
		<-ctx.Done()
		_ = server.Shutdown(context.Background()) // finishes what is in flight
		close(stopped)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	<-stopped
}
