// Package ledger holds the records of a chaos run: publications, receipts, answers, faults and drains, each with its
// time. The judge reads nothing else. Every file holds one JSON object per line and is only ever appended to, each line
// by one write, so that a process that is killed leaves at most its last line out.
package ledger

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"sidecar/internal/testkit/judge"
)

// The files of a run, in its directory.
const (
	RunFile       = "run.json"
	PublishFile   = "pub.log"
	AppFile       = "app.log"
	FaultFile     = "fault.log"
	PhaseFile     = "phase.log"
	ParkedFile    = "dlq.log"
	ResidualFile  = "residual.log"
	RedriveFile   = "redrive.log"
	ExitFile      = "exit.log"
	ResourceFile  = "resource.log"
	ProbeFile     = "probe.log"
	MetricsFile   = "metrics.txt"
	WarmUpMetrics = "metrics-warm-up.txt" // of the first sidecar, when everything so far was settled
	SidecarFile   = "sidecar.log"
	SecondFile    = "second.log" // of the second replica
	RelayFile     = "relay.log"  // of the second sidecar
	ScheduleFile  = "schedule.json"
	ReportFile    = "chaos-report.json"
	ReportPage    = "chaos-report.md"
	permissions   = 0o600
	longestRecord = 16 << 20
)

// Run holds the settings of one run, for the report and to repeat the run.
type Run struct {
	ID            string        `json:"id"`
	Seed          uint64        `json:"seed"`
	Commit        string        `json:"commit"`
	Binary        string        `json:"binary_sha256"`
	BrokerVersion string        `json:"broker_version"`
	QueueType     string        `json:"queue_type"`
	Topology      string        `json:"topology,omitempty"` // the preset
	Messages      int           `json:"messages"`           // planned, warm-up and liveness included
	WarmUp        int           `json:"warm_up"`
	Liveness      int           `json:"liveness"`
	Replicas      int           `json:"replicas,omitempty"` // of the service; faults of a sidecar are the first one's
	Concurrency   int           `json:"concurrency"`
	Prefetch      int           `json:"prefetch"`
	MaxRetries    int           `json:"max_retries"`
	RetryDelay    time.Duration `json:"retry_delay_ns"`
	RequeueDelay  time.Duration `json:"requeue_delay_ns"` // the shortest after 425
	AppTimeout    time.Duration `json:"app_timeout_ns"`
	Grace         time.Duration `json:"grace_ns"`
	Queue         string        `json:"queue"`
	Never         int           `json:"never"`   // see plan.Of
	Secrets       []string      `json:"secrets"` // canaries: they must turn up nowhere
	Replay        string        `json:"replay"`
	Schedule      string        `json:"schedule_sha256"`
	// HTTP and Outbox are how many messages those sources were to have in the end, rows that are rolled back included.
	HTTP   int `json:"http"`
	Outbox int `json:"outbox"`
	// Rollback is how many of a thousand rows are to be rolled back.
	Rollback int `json:"rollback"`
	Batches  int `json:"batches"` // of a hundred POSTs
	// Batch is how many rows a relay may publish before it marks them, Relays how many there are.
	Batch  int `json:"batch"`
	Relays int `json:"relays"`
	// Gather is SIDECAR_BATCH_SIZE, Spoiled how many of a hundred requests of several messages fail as a whole.
	Gather  int `json:"gather,omitempty"`
	Spoiled int `json:"spoiled,omitempty"`
	// MayLose says that a broker that is killed may lose what is in retry transit: classic queues.
	MayLose bool `json:"may_lose"`
	// Forgets says that the attempts are counted in the memory of the process: its end gives them back.
	Forgets bool `json:"forgets,omitempty"`
	// Limit is after how many rejects and lost connections together the broker dead-letters a message; 0: it never does.
	Limit int `json:"delivery_limit,omitempty"`
}

// Result of a publish.
type Result string

// The results. Only what is Confirmed must not be lost; what is Unknown may exist or not.
const (
	Confirmed Result = "confirmed"
	Nacked    Result = "nacked"
	Returned  Result = "returned"
	Unknown   Result = "unknown"
	// Refused is an answer of 4xx, RolledBack a row whose transaction was: neither may ever be in the broker.
	Refused    Result = "refused"
	RolledBack Result = "rolled back"
)

// Published is one message of the publisher.
type Published struct {
	Seq    int    `json:"seq"`
	ID     string `json:"id"`
	Sum    string `json:"sum"` // of the body
	Plan   string `json:"plan"`
	Sent   int64  `json:"sent"` // this and all other times: Unix nanoseconds
	Done   int64  `json:"done"`
	Result Result `json:"result"`
}

// Receipt is one request as the app saw it: a line when it arrived (Status 0) and, with the same Key, one when it was
// answered. Without the second it is unknown what the sidecar saw.
type Receipt struct {
	Key     string `json:"key"`
	Seq     int    `json:"seq"`
	ID      string `json:"id,omitempty"`
	Sum     string `json:"sum,omitempty"`   // empty: the body was not read
	Of      int    `json:"of,omitempty"`    // messages of its request
	Whole   bool   `json:"whole,omitempty"` // the request fails as a whole: the message's own plan is not followed
	Again   bool   `json:"again,omitempty"` // the request says that it was delivered before
	Attempt int    `json:"attempt,omitempty"`
	Count   int    `json:"count,omitempty"` // the retry count the sidecar sent
	Mark    string `json:"mark,omitempty"`  // the header that every message carries
	Odd     string `json:"odd,omitempty"`   // a header that no message may cause, or a property that changed
	At      int64  `json:"at"`
	Begun   int64  `json:"begun,omitempty"`  // when the answer began to be written
	Status  int    `json:"status,omitempty"` // Aborted, Hung or the status
	Error   string `json:"error,omitempty"`  // of writing the answer
}

// Answers that are no status.
const (
	Aborted = -1 // the connection was reset
	Hung    = -2 // nothing was answered until the other side went away
	Garbled = -3 // 207, and a body that is no list of results
)

// Fault is one that happened.
type Fault struct {
	ID    int    `json:"id"`
	Kind  string `json:"kind"`
	Class string `json:"class"`
	At    int    `json:"at"` // messages confirmed when it was due
	Start int64  `json:"start"`
	End   int64  `json:"end"`
	Error string `json:"error,omitempty"`
	// Recovered is when the app received something again after the end; 0 when it never did.
	Recovered int64 `json:"recovered,omitempty"`
}

// Storm is the phase in which things break.
const Storm = "faults"

// Phase is the beginning of one.
type Phase struct {
	Name string `json:"name"`
	At   int64  `json:"at"`
}

// Parked is one message of the dead-letter queue.
type Parked = judge.Parked

// Redriven is one message that was moved back from the dead-letter queue by hand.
type Redriven struct {
	Seq    int    `json:"seq"`
	ID     string `json:"id"`
	At     int64  `json:"at"`
	Result Result `json:"result"`
}

// Exit is the end of a sidecar process.
type Exit struct {
	At      int64  `json:"at"`
	Code    int    `json:"code"` // -1: ended by a signal
	Signal  string `json:"signal,omitempty"`
	Wanted  bool   `json:"wanted"`
	Started int64  `json:"started"`
	// Asked is the signal that asked for it, AskedAt when. Twice means that it was asked to hurry.
	Asked   string `json:"asked,omitempty"`
	AskedAt int64  `json:"asked_at,omitempty"`
	Twice   bool   `json:"twice,omitempty"`
}

// Resources are what the sidecar and the app hold.
type Resources struct {
	Label       string `json:"label"` // before or after
	At          int64  `json:"at"`
	PID         int    `json:"pid"`
	Goroutines  int    `json:"goroutines"`
	Descriptors int    `json:"descriptors"`
	RSS         int64  `json:"rss_bytes"`
	AppConns    int    `json:"app_conns"`
}

// Probe is a check that the driver made when nothing was wrong any more.
type Probe struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text,omitempty"`
	At   int64  `json:"at"`
}

// Now is the time as the ledgers have it.
func Now() int64 { return time.Now().UnixNano() }

// Writer appends records to one file. It is safe for concurrent use.
type Writer struct{ f *os.File }

// Append opens a file of a run for appending.
func Append(dir, name string) (*Writer, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, permissions)
	if err != nil {
		return nil, err
	}
	return &Writer{f}, nil
}

// Write appends one record. A ledger that cannot be written makes the whole run worthless, so the error must end it.
func (w *Writer) Write(record any) error {
	line, err := json.Marshal(record)
	if err != nil {
		return err
	}
	_, err = w.f.Write(append(line, '\n'))
	return err
}

// Sync makes what was written survive the machine.
func (w *Writer) Sync() error { return w.f.Sync() }

// Close syncs and closes the file.
func (w *Writer) Close() error { return errors.Join(w.f.Sync(), w.f.Close()) }

// Each reads a file of a run record by record, as Lines does.
func Each[T any](dir, name string, do func(*T) error) error {
	return Lines(dir, name, func(line []byte) error {
		var record T
		if err := json.Unmarshal(line, &record); err != nil {
			return err
		}
		return do(&record)
	})
}

// Lines reads a file of a run line by line. A file that is not there has none. A last line that was cut off is left
// out; any other that cannot be read is an error.
func Lines(dir, name string, do func([]byte) error) error {
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReaderSize(f, 1<<20)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // with or without the beginning of a line
		}
		if err != nil {
			return fmt.Errorf("%s line %d: %w", name, n, err)
		}
		if err := do(line); err != nil {
			return fmt.Errorf("%s line %d: %w", name, n, err)
		}
	}
}

// WriteJSON writes a file of a run that is one value.
func WriteJSON(dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), append(b, '\n'), permissions)
}

// ReadJSON reads a file of a run that is one value.
func ReadJSON(dir, name string, v any) error {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
