// Command publish publishes a message over HTTP, and tries again until the broker has it. Standard library only.
//
//	usage: publish http://127.0.0.1:9092/publish/default/order.placed '{"order":1}'
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

var client = http.Client{Timeout: 15 * time.Second}

// publish returns nil when the broker has confirmed the message, whose message id is key. After a broken connection, a
// timeout or a 504 it is unknown whether it has. The message is sent again with the same key, and may be there twice:
// consumers recognize it by that.
func publish(ctx context.Context, address, body, key string) error {
	for {
		pause, again, err := try(ctx, address, body, key)
		if err == nil || !again {
			return err
		}
		fmt.Println("not yet:", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// try publishes once. When that failed, again says whether it may be tried again, after the pause.
func try(ctx context.Context, address, body, key string) (pause time.Duration, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return 0, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	resp, err := client.Do(req)
	if err != nil {
		return time.Second, true, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < http.StatusMultipleChoices {
		return 0, false, nil
	}
	var problem struct{ Detail string }
	_ = json.NewDecoder(resp.Body).Decode(&problem)
	again = resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusGatewayTimeout
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		pause = time.Duration(seconds) * time.Second
	} else {
		pause = time.Second
	}
	return pause, again, fmt.Errorf("%d %s", resp.StatusCode, problem.Detail)
}

func valid(address string) bool {
	u, err := url.Parse(address)
	return err == nil && strings.HasPrefix(u.Scheme, "http") && u.Host != ""
}

func main() {
	if len(os.Args) != 3 || !valid(os.Args[1]) {
		fmt.Fprintln(os.Stderr, `usage: publish http://127.0.0.1:9092/publish/default/order.placed '{"order":1}'`)
		os.Exit(64)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	key := rand.Text()
	if err := publish(ctx, os.Args[1], os.Args[2], key); err != nil {
		fmt.Fprintln(os.Stderr, "publish:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to cancel
	}
	fmt.Println("published", key)
}
