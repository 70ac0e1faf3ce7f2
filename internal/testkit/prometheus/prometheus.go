// Package prometheus runs a real Prometheus for tests, which scrapes sidecars and evaluates the alert rules every
// second.
package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/testkit/proxy"
)

// patience bounds a failing run and is no claim about speed.
const patience = 2 * time.Minute

// Server is a real Prometheus that scrapes and evaluates every second.
type Server struct {
	t       testing.TB
	addr    string
	targets string // the file that lists what is scraped
	mu      sync.Mutex
	list    []target
	Began   time.Time // of the first scrape
}

type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// Start runs the binary of Debian's package, with its data in the test's own directory.
func Start(t testing.TB, rules string) *Server {
	t.Helper()
	dir := t.TempDir()
	p := &Server{t: t, addr: must.Get(proxy.FreeAddr())(t), targets: filepath.Join(dir, "targets.json"), Began: time.Now()}
	p.write()
	for name, text := range map[string]string{"alerts.yaml": rules, "prometheus.yml": `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [alerts.yaml]
scrape_configs:
  - job_name: sidecar
    file_sd_configs: [{files: [targets.json], refresh_interval: 1s}]
`} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	log := &apptest.Log{}
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.addr, "--log.level=warn")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start Prometheus (scripts/need.sh prometheus prometheus): %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus says:\n%s", log.String())
		}
	})
	brokertest.Eventually(t, patience, "Prometheus is ready", func() bool { return p.Get("/-/ready", nil, nil) == nil })
	return p
}

// Scrape adds a target, with the labels that the Prometheus Operator would give it, or none.
func (p *Server) Scrape(addr string, labels map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, target{[]string{addr}, labels})
	p.write()
}

func (p *Server) write() {
	p.t.Helper()
	b, err := json.Marshal(append([]target{}, p.list...))
	if err == nil {
		err = os.WriteFile(p.targets+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(p.targets+".new", p.targets) // never half a file
	}
	must.Do(p.t, err)
}

// Get asks the API of Prometheus; into may be nil.
func (p *Server) Get(path string, query url.Values, into any) error {
	from := "http://" + p.addr + path + "?" + query.Encode()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if into == nil {
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", res.Status)
		}
		return nil
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}

// Series is one line of an answer: its labels and [time, value] pairs.
type Series struct {
	Metric map[string]string `json:"metric"`
	Values [][2]any          `json:"values"`
	Value  [2]any            `json:"value"`
}

// Now evaluates a query at this moment.
func (p *Server) Now(query string) []Series {
	p.t.Helper()
	var data struct{ Result []Series }
	if err := p.Get("/api/v1/query", url.Values{"query": {query}}, &data); err != nil {
		p.t.Fatalf("%s: %v", query, err)
	}
	return data.Result
}

// Numbers counts the values other than NaN that a query has had since the start, second by second.
func (p *Server) Numbers(query string) (int, error) {
	var data struct{ Result []Series }
	err := p.Get("/api/v1/query_range", url.Values{
		"query": {query}, "step": {"1"},
		"start": {fmt.Sprint(p.Began.Unix())}, "end": {fmt.Sprint(time.Now().Unix())},
	}, &data)
	n := 0
	for _, s := range data.Result {
		for _, v := range s.Values {
			if v[1] != "NaN" {
				n++
			}
		}
	}
	return n, err
}

// Fires waits for an alert with all those labels, pairs of name and value.
func (p *Server) Fires(alert string, labels ...string) {
	p.t.Helper()
	brokertest.Eventually(p.t, patience, "the alert "+alert+" fires", func() bool { return p.Firing(alert, labels...) })
}

// Firing reports whether an alert fires with all those labels, pairs of name and value.
func (p *Server) Firing(alert string, labels ...string) bool {
	p.t.Helper()
	selector := []string{`alertstate="firing"`, fmt.Sprintf("alertname=%q", alert)}
	for i := 0; i < len(labels); i += 2 {
		selector = append(selector, fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
	}
	return len(p.Now("ALERTS{"+strings.Join(selector, ",")+"}")) > 0
}

// Impatient returns the alert rules of a file with minutes made into seconds, but at least five, and hours into ten
// seconds. How long they wait is tested by promtool (test/alerts), what they say of a sidecar by those who call this.
func Impatient(t testing.TB, alertsFile string) string {
	t.Helper()
	text := string(must.Get(os.ReadFile(alertsFile))(t))
	for _, r := range [][2]string{{`(?m)for: \w+$`, "for: 1s"}, {`\[1h\]`, "[10s]"}, {`\[3m\]`, "[15s]"}, {`\[(\d+)m\]`, "[${1}s]"},
		{`offset 1h`, "offset 10s"}, {`offset 30m`, "offset 5s"}, {`offset 3m`, "offset 15s"}} {
		if !regexp.MustCompile(r[0]).MatchString(text) {
			t.Fatalf("no alert has %s: has the form of the file changed?", r[0])
		}
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}
