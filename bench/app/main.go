// Command app is the app of a benchmark: it answers every POST the same way, as cheaply as it can, and keeps the books.
//
// Its data listeners, one on TCP and one on the Unix socket $APP_SOCKET, speak just enough HTTP/1.1 for the clients
// that are measured. The control listener, on its own port, is only asked before and after a run.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		os.Exit(1)
	}
}

func run() error {
	var listen net.ListenConfig
	data, err := listen.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	control, err := listen.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b := newBooks()
	go b.accept(data)
	local, err := listen.Listen(context.Background(), "unix", os.Getenv("APP_SOCKET"))
	if err != nil {
		return fmt.Errorf("APP_SOCKET: %w", err)
	}
	go b.accept(local)
	// The driver reads this line to learn the ports.
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{
		"data": data.Addr().String(), "control": control.Addr().String(),
	}); err != nil {
		return err
	}
	server := &http.Server{Handler: b.control(), ReadHeaderTimeout: time.Minute}
	return server.Serve(control)
}

// control answers the driver: reset begins new books, release lets held answers go, wait returns when enough has
// arrived, stats returns the books.
func (b *books) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /reset", func(w http.ResponseWriter, r *http.Request) {
		var p plan
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		b.reset(p)
	})
	mux.HandleFunc("POST /release", func(http.ResponseWriter, *http.Request) { b.release() })
	mux.HandleFunc("POST /wait", func(w http.ResponseWriter, r *http.Request) {
		var g goal
		if err := json.NewDecoder(r.Body).Decode(&g); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := b.wait(r.Context(), g); err != nil {
			http.Error(w, err.Error(), http.StatusGatewayTimeout)
		}
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(b.stats())
	})
	return mux
}
