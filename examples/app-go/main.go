// The program app-go is an app behind the sidecar that dispatches by the routing key.
//
//	usage: app-go [PORT]      default 8080, 0 takes a free one; listens on 127.0.0.1 only
//
// To try retries: for a message with the header closed=2 the warehouse is closed for the first two attempts.
package main

import (
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

type order struct{ Order int }

// handlers are by routing key. It is the key of the first publish, also of a message that was retried or redriven.
var handlers = map[string]func(order) string{
	"order.created":   func(o order) string { return fmt.Sprintf("reserved order %d", o.Order) },
	"order.cancelled": func(o order) string { return fmt.Sprintf("released order %d", o.Order) },
	"order.shipped":   func(o order) string { return fmt.Sprintf("invoiced order %d", o.Order) },
}

var errClosed = errors.New("the warehouse is closed")

type app struct {
	mu sync.Mutex
	// Delivery is at least once. A real app keeps the ids in its database and adds one in the transaction that does the
	// work.
	done     map[string]bool
	attempts map[string]int
}

// warehouse stands for what the work needs and what is away sometimes.
func (a *app) warehouse(id string, closed int) error {
	if a.attempts[id]++; a.attempts[id] <= closed {
		return errClosed
	}
	return nil
}

func (a *app) handle(r *http.Request) error {
	key, id := r.Header.Get("Amqp-Routing-Key"), r.Header.Get("Amqp-Message-Id")
	a.mu.Lock()
	defer a.mu.Unlock()
	work, known := handlers[key]
	if !known || a.done[id] { // a message with another key is not for this app
		return nil
	}
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		return err
	}
	closed, _ := strconv.Atoi(r.Header.Get("Amqp-Header-Closed"))
	if err := a.warehouse(id, closed); err != nil {
		return err
	}
	fmt.Printf("%s %s: %s\n", key, id, work(o))
	a.done[id] = true
	return nil
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := a.handle(r)
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	// The sidecar retries the message. JSON says why it failed: an operator finds it beside a parked message.
	status := http.StatusInternalServerError
	if errors.Is(err, errClosed) {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
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
	server := &http.Server{
		Handler:           &app{done: map[string]bool{}, attempts: map[string]int{}},
		ReadHeaderTimeout: 5 * time.Second,
	}
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
