//go:build nightly

package queues

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
	"sidecar/test/chaos/ledger"
)

// story is a small run of two queues in which all went well. The first queue is ordered. Times are in milliseconds.
type story struct {
	run      Run
	sent     []Sent
	receipts []Receipt
	parked   []ledger.Parked
	residual []ledger.Parked
	faults   []Fault
	probes   []ledger.Probe
	exits    []ledger.Exit
}

func ms(n int) int64 { return int64(time.Hour) + int64(n)*int64(time.Millisecond) }

// newStory is a run of ten messages of one key in each queue, every 100 ms, each handled as planned.
func newStory() *story {
	s := &story{run: Run{
		ID: "r", Seed: 2, Names: []string{"a", "b"}, Queues: []string{"qa", "qb"}, Keys: 1, Ordered: 1, MaxRetries: 5,
		RetryDelay: 300 * time.Millisecond, AppTimeout: time.Second, Within: time.Second,
	}}
	for n := range 10 {
		for queue := range 2 {
			name := Name{queue, 0, n}
			if p := plan(s.run.Seed, name); len(p) != 1 || p[0].status != 200 {
				panic(fmt.Sprintf("choose another seed: %v is planned for %v", p, name))
			}
			s.sent = append(s.sent, Sent{ID: name.id("r"), At: ms(100 * n), Done: ms(100*n + 1), Result: ledger.Confirmed})
			s.receive(name, 100*n+5, 1, 200)
		}
	}
	return s
}

// receive is one attempt, which takes 5 ms.
func (s *story) receive(n Name, at, attempt, status int) {
	call := fmt.Sprint(len(s.receipts))
	s.receipts = append(s.receipts,
		Receipt{Call: call, ID: n.id("r"), Path: s.run.Names[n.Queue], Attempt: attempt, Count: attempt - 1, At: ms(at)},
		Receipt{Call: call, Begun: ms(at + 4), At: ms(at + 5), Status: status})
}

// of returns the receipt and the answer of a message.
func (s *story) of(n Name) (receipt, answer *Receipt) {
	i := slices.IndexFunc(s.receipts, func(r Receipt) bool { return r.ID == n.id("r") })
	return &s.receipts[i], &s.receipts[i+1]
}

func (s *story) forget(n Name) {
	i := slices.IndexFunc(s.receipts, func(r Receipt) bool { return r.ID == n.id("r") })
	s.receipts = slices.Delete(s.receipts, i, i+2)
}

func (s *story) fault(kind string, queue, at int) *Fault {
	s.faults = append(s.faults, Fault{ID: len(s.faults) + 1, Kind: kind, Queue: queue, Start: ms(at), End: ms(at + 1), Recovered: ms(at + 50)})
	return &s.faults[len(s.faults)-1]
}

// TestJudge has the same run with one thing wrong each time.
func TestJudge(t *testing.T) {
	t.Parallel()
	second := Name{1, 0, 4}
	for what, c := range map[string]struct {
		change func(*story)
		want   []string
	}{
		"nothing wrong":                   {func(*story) {}, nil},
		"still in a queue":                {func(s *story) { s.residual = []ledger.Parked{{ID: second.id("r")}} }, []string{"I1"}},
		"lost":                            {func(s *story) { s.forget(second) }, []string{"I1"}},
		"lost with another deleted queue": {func(s *story) { s.forget(second); s.fault(QueueDeleted, 0, 450) }, []string{"I1"}},
		"more gone than purged":           {func(s *story) { s.forget(second); s.fault(Purged, 1, 450) }, []string{"I1"}},
		"acked after a failure":           {func(s *story) { _, a := s.of(second); a.Status = 500 }, []string{"I2"}},
		"a message of another run":        {func(s *story) { r, _ := s.of(second); r.ID = "x-1-0-4" }, []string{"I1", "I3"}},
		"another path":                    {func(s *story) { r, _ := s.of(second); r.Path = "a" }, []string{"I3"}},
		"never published":                 {func(s *story) { s.receive(Name{1, 0, 10}, 1200, 1, 200) }, []string{"I3"}},
		"a wrong count":                   {func(s *story) { r, _ := s.of(second); r.Count = 1 }, []string{"I5"}},
		"parked for no reason": {func(s *story) { s.parked = append(s.parked, ledger.Parked{ID: second.id("r")}) },
			[]string{"I5", "I17"}},
		"a fault that failed":           {func(s *story) { s.fault("cut", -1, 5000).Error = "no" }, []string{"I9"}},
		"a queue that receives nothing": {func(s *story) { s.fault("cut", -1, 5000).Recovered = 0 }, []string{"I9"}},
		"something is left":             {func(s *story) { s.probes = append(s.probes, ledger.Probe{Name: "p"}) }, []string{"I9"}},
		"a sidecar that ended":          {func(s *story) { s.exits = append(s.exits, ledger.Exit{Code: 2}) }, []string{"I9"}},
		"again":                         {func(s *story) { s.receive(second, 3000, 1, 200) }, []string{"I5", "I17"}},
		"again after a fault of another queue": {func(s *story) { s.receive(second, 3000, 1, 200); s.fault("channel-close", 0, 420) },
			[]string{"I5", "I17"}},
		"again after a stop":       {func(s *story) { s.receive(second, 3000, 1, 200); s.fault(SidecarEnded, -1, 420) }, []string{"I17"}},
		"late":                     {func(s *story) { s.late(Name{1, 0, 9}) }, []string{"I17"}},
		"late in a queue in order": {func(s *story) { s.late(Name{0, 0, 9}) }, []string{"I17"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			c.change(s)
			v, _, err := Judge(s.write(t))
			if err != nil {
				t.Fatal(err)
			}
			if broken := v.Broken(); !slices.Equal(broken, c.want) {
				t.Errorf("broken: %v, want %v", broken, c.want)
				for _, i := range v.Invariants {
					t.Log(i.ID, i.Examples)
				}
			}
		})
	}
}

// late makes a message arrive two seconds after it was published.
func (s *story) late(n Name) {
	r, a := s.of(n)
	r.At, a.Begun, a.At = r.At+2e9, a.Begun+2e9, a.At+2e9
}

func (s *story) write(t *testing.T) string {
	dir := t.TempDir()
	must.Do(t, ledger.WriteJSON(dir, ledger.RunFile, s.run))
	lines(t, dir, SentFile, s.sent)
	lines(t, dir, ledger.AppFile, s.receipts)
	lines(t, dir, ledger.ParkedFile, s.parked)
	lines(t, dir, ledger.ResidualFile, s.residual)
	lines(t, dir, ledger.FaultFile, s.faults)
	lines(t, dir, ledger.ProbeFile, s.probes)
	lines(t, dir, ledger.ExitFile, s.exits)
	return dir
}

func lines[T any](t *testing.T, dir, name string, records []T) {
	w := must.Get(ledger.Append(dir, name))(t)
	for _, r := range records {
		must.Do(t, w.Write(r))
	}
	must.Do(t, w.Close())
}
