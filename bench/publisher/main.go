// Command publisher is compared with the sidecar's publish endpoint. It is the service that a good engineer writes by
// hand: net/http in front of amqp091-go, a pool of channels in confirm mode. A channel carries the messages of one
// request at a time: all of a batch are written before the first confirm is waited for. With TRACEPARENT=1 each message
// has a traceparent, as the sidecar's have. It must stay honest: if you can make it faster within its rules, do.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "publisher:", err)
		os.Exit(1)
	}
}

func run() error {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	channels, err := strconv.Atoi(os.Getenv("CONCURRENCY"))
	if err != nil {
		return fmt.Errorf("CONCURRENCY: %w", err)
	}
	conn, err := amqp.Dial(os.Getenv("AMQP_URL"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	p := &publisher{
		exchange: os.Getenv("EXCHANGE"), traces: os.Getenv("TRACEPARENT") != "", pool: make(chan *channel, channels),
	}
	for range channels {
		c, err := open(conn)
		if err != nil {
			return err
		}
		p.pool <- c
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /publish/{alias}/{key}", p.one)
	mux.HandleFunc("POST /publish:batch", p.batch)
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{Addr: os.Getenv("ADDR"), Handler: mux, ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-stop.Done():
		return server.Shutdown(context.Background())
	}
}

type publisher struct {
	exchange string
	traces   bool
	pool     chan *channel
}

// headers are those of a message.
func (p *publisher) headers() amqp.Table {
	if !p.traces {
		return nil
	}
	trace := make([]byte, 0, 55)
	trace = hex.AppendEncode(append(trace, "00-"...), binary.BigEndian.AppendUint64(nil, rand.Uint64()))
	trace = hex.AppendEncode(trace, binary.BigEndian.AppendUint64(nil, rand.Uint64()))
	trace = hex.AppendEncode(append(trace, '-'), binary.BigEndian.AppendUint64(nil, rand.Uint64()))
	return amqp.Table{"traceparent": string(append(trace, "-00"...))}
}

// channel carries the messages of one request at a time, so that what returns is of that request.
type channel struct {
	*amqp.Channel

	returns chan amqp.Return
}

func open(conn *amqp.Connection) (*channel, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	return &channel{ch, ch.NotifyReturn(make(chan amqp.Return, 1000))}, ch.Confirm(false)
}

var (
	errNacked     = errors.New("the broker did not take the message")
	errUnroutable = errors.New("no queue for the message")
)

// publish publishes messages and waits for all confirms. A return comes before the confirm.
func (c *channel) publish(ctx context.Context, exchange string, keys []string, messages []amqp.Publishing) error {
	confirms := make([]*amqp.DeferredConfirmation, len(messages))
	for i, m := range messages {
		d, err := c.PublishWithDeferredConfirmWithContext(ctx, exchange, keys[i], true, false, m)
		if err != nil {
			return err
		}
		confirms[i] = d
	}
	for _, d := range confirms {
		if ok, err := d.WaitContext(ctx); err != nil {
			return err
		} else if !ok {
			return errNacked
		}
	}
	select {
	case <-c.returns:
		return errUnroutable
	default:
		return nil
	}
}

func (p *publisher) one(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ch := <-p.pool
	defer func() { p.pool <- ch }()
	if err := ch.publish(r.Context(), p.exchange, []string{r.PathValue("key")}, []amqp.Publishing{{
		DeliveryMode: amqp.Persistent, ContentType: r.Header.Get("Content-Type"), MessageId: r.Header.Get("Idempotency-Key"),
		Headers: p.headers(), Body: body,
	}}); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// item is a line of a batch, as the sidecar takes it.
type item struct {
	RoutingKey string `json:"routing_key"`
	MessageID  string `json:"message_id"`
	Body       string `json:"body"`
}

func (p *publisher) batch(w http.ResponseWriter, r *http.Request) {
	var keys []string
	var messages []amqp.Publishing
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var i item
		if err := json.Unmarshal(lines.Bytes(), &i); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		keys = append(keys, i.RoutingKey)
		messages = append(messages, amqp.Publishing{DeliveryMode: amqp.Persistent, ContentType: "text/plain",
			Headers: p.headers(), MessageId: i.MessageID, Body: []byte(i.Body)})
	}
	if err := lines.Err(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ch := <-p.pool
	defer func() { p.pool <- ch }()
	if err := ch.publish(r.Context(), p.exchange, keys, messages); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	out := bufio.NewWriter(w)
	for i := range messages {
		_, _ = fmt.Fprintf(out, "{\"index\":%d,\"status\":204}\n", i)
	}
	_ = out.Flush()
}
