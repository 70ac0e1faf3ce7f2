package amqpwire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/testkit/must"
)

// returnFrame is basic.return.
func returnFrame(channel uint16, exchange, key string) []byte {
	return frame(1, channel, method(60, 50, []byte{1, 56}, short("NO_ROUTE"), short(exchange), short(key)))
}

// wholeDelivery is a delivery with its body.
func wholeDelivery(tag uint64, body []byte) []byte {
	b := append(deliverFrame(1, "ours", tag, false, "", "k"), contentFrame(1, "id", "v", len(body))...)
	for part := range slices.Chunk(body, 100_000) {
		b = append(b, frame(3, 1, part)...)
	}
	return b
}

// receiving is a wire whose reader runs, with what our consumer has received.
type receiving struct {
	*Wire
	q      *Deliveries
	memory *budget.Account
	ended  chan error
}

func receive(t *testing.T, o Options, limit int64, stream []byte) *receiving {
	t.Helper()
	memory := budget.New(limit).Account(budget.Deliveries)
	o.Memory = memory
	r := &receiving{memory: memory, ended: make(chan error, 1)}
	r.Wire, r.q = consuming(o, stream, whole)
	go func() {
		_, err := io.ReadAll(r.Wire)
		r.ended <- err
	}()
	t.Cleanup(func() {
		r.Kill()
		r.q.Drop()
		t.Log("the reader ended:", <-r.ended)
		if held := memory.Held(); held != 0 {
			t.Errorf("%d bytes are held after the end", held)
		}
	})
	return r
}

// take waits for n deliveries.
func (r *receiving) take(t *testing.T, n int) (all []*Delivery) {
	t.Helper()
	brokertest.Eventually(t, time.Minute, "deliveries", func() bool {
		batch, _ := r.q.Take(nil)
		all = append(all, batch...)
		return len(all) >= n
	})
	return all
}

func free(list []*Delivery) {
	for _, d := range list {
		d.Free()
	}
}

// TestALargeBodyGoesToAFile: larger than the budget at once, others after a while; the next ones of that size do not
// wait.
func TestALargeBodyGoesToAFile(t *testing.T) {
	t.Parallel()
	large, body := bytes.Repeat([]byte("large"), 500<<10), bytes.Repeat([]byte("b"), 300<<10)
	spool := NewSpool(t.TempDir(), 10<<20)
	r := receive(t, Options{Patience: time.Millisecond, Spool: spool}, 1<<20, slices.Concat(
		wholeDelivery(1, large), wholeDelivery(2, body), wholeDelivery(3, body), wholeDelivery(4, body), wholeDelivery(5, []byte("small"))))
	all := r.take(t, 5)
	for i, want := range [][]byte{large, body, body, body, []byte("small")} {
		d := all[i]
		if d.DecodeHeaders(); !bytes.Equal(d.Body, want) || d.Headers["text"] != "v" || (d.spooled != nil) != (i == 0 || i == 2 || i == 3) {
			t.Errorf("%d: %d bytes, in a file: %v, headers %v", i, len(d.Body), d.spooled != nil, d.Headers)
		}
	}
	if used := spool.used.Load(); used != int64(len(large)+2*len(body)) {
		t.Errorf("%d bytes of disk are used", used)
	}
	free(all)
	if used := spool.used.Load(); used != 0 {
		t.Errorf("%d bytes of disk are left", used)
	}
}

func TestABodyWithoutAPlace(t *testing.T) {
	t.Parallel()
	large := make([]byte, 2<<20)
	for name, tt := range map[string]struct {
		spool *Spool
		why   string
	}{
		"no spool":         {nil, "SIDECAR_SPOOL_DIR"},
		"no directory":     {NewSpool("", 1<<30), "SIDECAR_SPOOL_DIR"},
		"missing":          {NewSpool(t.TempDir()+"/missing", 1<<30), "no such file"},
		"full":             {NewSpool(t.TempDir(), 1<<20), "more than 1048576 bytes in all"},
		"not a disk":       {NewSpool("/dev/shm", 1<<30), "in memory"},
		"no right to it":   {NewSpool("/proc", 1<<30), "spool to /proc"},
		"more than a disk": {NewSpool("/sys", 1<<30), "spool to /sys"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := receive(t, Options{Spool: tt.spool}, 1<<20, slices.Concat(wholeDelivery(1, large), wholeDelivery(2, []byte("behind"))))
			all := r.take(t, 2)
			d := all[0]
			if d.Missing != int64(len(large)) || len(d.Body) != 0 || !strings.Contains(d.MissingWhy.Error(), tt.why) {
				t.Errorf("%d bytes missing, %d there: %v", d.Missing, len(d.Body), d.MissingWhy)
			}
			if string(all[1].Body) != "behind" || all[1].Missing != 0 {
				t.Errorf("behind it: %q", all[1].Body)
			}
			if tt.spool != nil && tt.spool.used.Load() != 0 {
				t.Errorf("%d bytes of disk are counted", tt.spool.used.Load())
			}
			free(all)
		})
	}
}

// TestNoMemoryForHeaders: where not even the headers find room, the delivery comes without both.
func TestNoMemoryForHeaders(t *testing.T) {
	t.Parallel()
	r := receive(t, Options{Patience: time.Millisecond}, 10<<10, slices.Concat(
		wholeDelivery(1, []byte("1")), wholeDelivery(2, []byte("2")), wholeDelivery(3, []byte("3")), wholeDelivery(4, []byte("4"))))
	all := r.take(t, 4)
	last := all[3]
	if last.DecodeHeaders(); last.Missing != 1 || !errors.Is(last.MissingWhy, ErrNoMemory) || last.Headers != nil || last.MessageId != "id" {
		t.Errorf("%+v", last)
	}
	free(all)
}

// TestAConnectionEndsWhileItWaitsForMemory: killed, or in the middle of a message. The cleanup checks what is still
// held.
func TestAConnectionEndsWhileItWaitsForMemory(t *testing.T) {
	t.Parallel()
	body := make([]byte, 400<<10)
	r := receive(t, Options{Patience: time.Hour}, 1<<20, slices.Concat(wholeDelivery(1, body), wholeDelivery(2, body)))
	first := r.take(t, 1)
	brokertest.Eventually(t, time.Minute, "it waits", r.full.Load)
	r.Kill()
	if err := <-r.ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("ended with %v", err)
	}
	r.ended <- nil
	free(first)

	cut := wholeDelivery(1, body)
	r = receive(t, Options{}, 1<<20, cut[:len(cut)/2])
	err := <-r.ended
	if held := r.memory.Held(); held != 0 || err != nil {
		t.Errorf("%d bytes of half a message are held, %v", held, err)
	}
	r.ended <- nil
	if n, err := r.Read(make([]byte, 10)); n != 0 || err == nil {
		t.Errorf("read on after the end: %d, %v", n, err)
	}
}

// heldOf is what a delivery with a body of size bytes holds of a share.
type heldOf struct {
	share, size int
	want        string // memory, file, or why the body is missing
}

// shares holds the deliveries of several consumers, none of which waits, and checks where their bodies are.
func shares(t *testing.T, limit int64, n int, spool *Spool, list []heldOf) []*Delivery {
	t.Helper()
	memory := budget.New(limit).Account(budget.Deliveries)
	in := newIntake(t.Context(), Options{Memory: memory, Patience: time.Hour, Spool: spool})
	parts := memory.Shares(n)
	all := make([]*Delivery, len(list))
	for i, c := range list {
		all[i] = &Delivery{}
		must.Do(t, in.hold(all[i], int64(c.size), parts[c.share]))
		got := "memory"
		switch d := all[i]; {
		case d.Missing != 0:
			got = d.MissingWhy.Error()
		case d.spooled != nil:
			got = "file"
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%d: %d bytes of share %d: %s, want %s", i, c.size, c.share, got, c.want)
		}
	}
	t.Cleanup(func() {
		free(all)
		if held := memory.Held(); held != 0 {
			t.Errorf("%d bytes are held", held)
		}
	})
	return all
}

// TestSharesDoNotWait: a body without room in its share goes to a file at once, also one that fits into the budget. The
// others have theirs.
func TestSharesDoNotWait(t *testing.T) {
	t.Parallel()
	shares(t, 800_000, 2, NewSpool(t.TempDir(), 4<<20), []heldOf{
		{0, 700_000, "file"}, {0, 150_000, "memory"}, {0, 150_000, "file"}, {0, 10, "memory"},
		{1, 150_000, "memory"}, {1, 10_000, "memory"}, {1, 40_000, "file"}, {1, 0, "memory"},
	})
	shares(t, 800_000, 7, NewSpool(t.TempDir(), 4<<20), []heldOf{
		{0, 60_000, "file"}, {1, 30_000, "memory"}, {2, 30_000, "memory"}, {3, 30_000, "memory"}, {4, 30_000, "memory"},
		{5, 30_000, "memory"}, {6, 30_000, "memory"}, {0, 30_000, "memory"},
	})
}

// TestSharesWithoutFiles: a single body beyond its share is in memory that no other consumer has a share of.
func TestSharesWithoutFiles(t *testing.T) {
	t.Parallel()
	all := shares(t, 800_000, 2, NewSpool("/proc", 1<<30), []heldOf{
		{0, 700_000, "spool to /proc"}, {0, 500_000, "memory"}, {0, 1000, "other messages use all"},
		{1, 150_000, "memory"}, {1, 10, "memory"}, {1, 250_000, "spool to /proc"},
	})
	for i, want := range map[int]int64{0: 702_048, 2: 2048, 5: 252_048} {
		if memory, n := all[i].Lacked(); n != want || memory.Fits(n) {
			t.Errorf("%d lacks %d bytes, want %d", i, n, want)
		}
	}
	freed := all[0].memory.Freed()
	all[1].Free()
	all[1] = &Delivery{}
	if <-freed; !all[2].memory.Fits(2048) {
		t.Error("memory that was given back is not announced")
	}
}

// TestAFullShareKeepsHeaders: bodies leave room for the headers of other deliveries of their consumer.
func TestAFullShareKeepsHeaders(t *testing.T) {
	t.Parallel()
	list := make([]heldOf, 20)
	for i := range list {
		list[i] = heldOf{0, 40_000, ""}
	}
	for i, d := range shares(t, 800_000, 2, NewSpool(t.TempDir(), 1<<20), list) {
		if d.Missing != 0 {
			t.Errorf("%d has no body: %v", i, d.MissingWhy)
		}
	}
}
