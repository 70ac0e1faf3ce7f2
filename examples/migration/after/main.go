// The same service behind the sidecar.
package main

import (
	"errors"
	"flag"
	"io"
	"log"
	"net/http"
	"time"

	"sidecar/examples/migration/billing"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	http.HandleFunc("POST /orders", handle)
	server := &http.Server{Addr: *addr, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func handle(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = billing.Bill(body)
	}
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, billing.ErrInvalid):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity) // parked: SIDECAR_PARK_ON_STATUS=422
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable) // waits in the broker, then again
	}
}
