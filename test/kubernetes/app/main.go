//go:build linux

// Command app is the application of the tests on a cluster. It does with every message as the message says, and reports
// to the collector of the test, which outlives the pod.
//
//	app                    serves HTTP on PORT, default 8080
//	app kill CONTAINER-ID  kills that container's processes, in a pod that sees those of the node
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// order is the body of a message.
type order struct {
	ID        string `json:"id"`
	Collector string `json:"collector"`
	Work      string `json:"work"` // how long it takes
	Then      string `json:"then"` // "", oom, sick (and healthy again after a restart), finish
}

// event is what the collector receives.
type event struct {
	Kind     string `json:"kind"` // boot, begin, end, sigterm
	ID       string `json:"id,omitempty"`
	Pod      string `json:"pod"`
	Boot     string `json:"boot"` // of this run of the container
	Retries  string `json:"retries,omitempty"`
	Again    string `json:"again,omitempty"` // what the broker says about an earlier delivery
	Inflight int64  `json:"inflight"`
	Sidecar  string `json:"sidecar,omitempty"` // its state when SIGTERM came; gone when it had ended
}

type app struct {
	pod, boot string
	client    *http.Client
	inflight  atomic.Int64
	sick      atomic.Bool
	finish    chan struct{}

	mu        sync.Mutex
	collector string // of the last message, unless COLLECTOR says
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "kill" {
		exit(kill(os.Args[2]))
	}
	exit(serve())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve() error {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	a := &app{
		pod: os.Getenv("HOSTNAME"), boot: rand.Text()[:8], collector: os.Getenv("COLLECTOR"),
		client: &http.Client{Timeout: 10 * time.Second}, finish: make(chan struct{}, 1),
	}
	if a.collector != "" {
		if err := a.report(event{Kind: "boot"}); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /", a.handle)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if a.sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	server := &http.Server{Addr: ":" + port, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-a.finish:
		return server.Shutdown(context.Background())
	case <-term:
		// It finishes nothing, as a careless app does: what were lost by this must not be in its hands any more.
		return a.report(event{Kind: "sigterm", Inflight: a.inflight.Load(), Sidecar: a.sidecar()})
	}
}

func (a *app) handle(w http.ResponseWriter, r *http.Request) {
	a.inflight.Add(1)
	defer a.inflight.Add(-1)
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	if os.Getenv("COLLECTOR") == "" {
		a.collector = o.Collector
	}
	a.mu.Unlock()
	e := event{Kind: "begin", ID: o.ID, Retries: r.Header.Get("Amqp-Retry-Count"), Again: r.Header.Get("Amqp-Redelivered")}
	err := a.report(e)
	if err == nil {
		err = a.work(r.Context(), o)
	}
	if err == nil {
		e.Kind = "end"
		err = a.report(e)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (a *app) work(ctx context.Context, o order) error {
	if o.Work != "" {
		d, err := time.ParseDuration(o.Work)
		if err != nil {
			return err
		}
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	switch o.Then {
	case "oom":
		eat()
	case "sick":
		a.sick.Store(true)
	case "finish":
		a.finish <- struct{}{}
	}
	return nil
}

// eat takes memory until the kernel kills this process.
func eat() {
	var all [][]byte
	for {
		all = append(all, bytes.Repeat([]byte{1}, 4<<20))
		if len(all) > 4096 { // 16 GiB: there is no limit
			panic("the container has no memory limit")
		}
	}
}

func (a *app) report(e event) error {
	e.Pod, e.Boot = a.pod, a.boot
	a.mu.Lock()
	to := a.collector
	a.mu.Unlock()
	if to == "" {
		return errors.New("no collector is known")
	}
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	answer, err := a.client.Post(to, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the collector answers %s", answer.Status)
	}
	return nil
}

// sidecar asks the sidecar, which listens for the pod's own containers.
func (a *app) sidecar() string {
	answer, err := a.client.Get("http://127.0.0.1:9091/status")
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "gone"
	}
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	var status struct {
		State string `json:"state"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&status); err != nil {
		return err.Error()
	}
	return status.State
}

// kill ends the processes of a container without warning, as the kernel does when memory runs out.
func kill(container string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	killed := 0
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		group, err := os.Open("/proc/" + e.Name() + "/cgroup")
		if err != nil {
			continue
		}
		text, err := io.ReadAll(group)
		_ = group.Close()
		if err == nil && bytes.Contains(text, []byte(container)) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				return err
			}
			killed++
		}
	}
	if killed == 0 {
		return fmt.Errorf("no process of the container %s is to be seen", container)
	}
	fmt.Printf("killed %d processes\n", killed)
	return nil
}
