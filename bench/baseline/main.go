// Command baseline is the consumer that a good engineer writes by hand in an afternoon: amqp091-go, N workers, a tuned
// net/http client, one ack per message. The sidecar is compared with it, so it must stay honest: if you can make it
// faster within its rules, do.
//
// With BATCH it gathers so many messages for each POST, see batch.go.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "baseline:", err)
		os.Exit(1)
	}
}

func run() error {
	// First of all: it may be asked to stop as soon as its first message has arrived.
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	workers, err := strconv.Atoi(os.Getenv("CONCURRENCY"))
	if err != nil {
		return fmt.Errorf("CONCURRENCY: %w", err)
	}
	conn, err := amqp.Dial(os.Getenv("AMQP_URL"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		MaxIdleConns: workers, MaxIdleConnsPerHost: workers, MaxConnsPerHost: workers,
		IdleConnTimeout: 90 * time.Second, DisableCompression: true, ForceAttemptHTTP2: false,
		WriteBufferSize: 16 << 10, ReadBufferSize: 4 << 10,
		DialContext: (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
	}}
	url := os.Getenv("APP_URL")
	if size := os.Getenv("BATCH"); size != "" {
		n, err := strconv.Atoi(size)
		if err != nil {
			return fmt.Errorf("BATCH: %w", err)
		}
		return batches(stop, conn, workers, n, func(body []byte) bool { return postLines(client, url, body) })
	}
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(2*workers, 0, false); err != nil { // as the sidecar does
		return err
	}
	deliveries, err := ch.Consume(queue(), "baseline", false, false, false, false, nil)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for d := range deliveries {
				if err := settle(&d, post(client, url, &d)); err != nil {
					report(err)
				}
			}
		})
	}
	<-stop.Done()
	if err := ch.Cancel("baseline", false); err != nil {
		return err
	}
	running.Wait()
	return nil
}

func queue() string { return os.Getenv("QUEUE") }

func report(err error) { fmt.Fprintln(os.Stderr, "baseline:", err) }

func settle(d *amqp.Delivery, handled bool) error {
	if handled {
		return d.Ack(false)
	}
	return d.Nack(false, true)
}

func post(client *http.Client, url string, d *amqp.Delivery) bool {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(d.Body))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", d.ContentType)
	req.Header.Set("Amqp-Message-Id", d.MessageId)
	return succeeds(client, req)
}

func succeeds(client *http.Client, req *http.Request) bool {
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil { // or the connection is not used again
		return false
	}
	return resp.StatusCode/100 == 2
}
