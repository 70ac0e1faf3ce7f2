// The program app is an app that reads JSON, in the plain way of net/http.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
)

func handle(w http.ResponseWriter, r *http.Request) {
	var order any
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text, _ := json.Marshal(order)
	fmt.Printf("%s %s\n", r.Header.Get("Amqp-Routing-Key"), text)
	w.WriteHeader(http.StatusNoContent)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr())
	log.Fatal(http.Serve(listener, http.HandlerFunc(handle)))
}
