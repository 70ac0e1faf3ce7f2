package test

import (
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
	"sidecar/internal/testkit/prometheus"
)

const (
	alertsFile    = "../deploy/helm/amqp-sidecar/files/alerts.yaml"
	dashboardFile = "../deploy/helm/amqp-sidecar/files/dashboard.json"
)

// grafana is what Grafana would ask Prometheus for.
type grafana struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
	Templating struct {
		List []struct {
			Name, Type string
			Definition string
		}
	}
	Annotations struct{ List []struct{ Name, Expr string } }
}

// checkDashboard asks all of it, as Grafana does with every filter on *All*. A query that has had no number at all
// since the start is a panel that stays empty.
func checkDashboard(t *testing.T, p *prometheus.Server) {
	t.Helper()
	b := must.Get(os.ReadFile(dashboardFile))(t)
	var d grafana
	must.Do(t, json.Unmarshal(b, &d))
	values := map[string]string{
		"__rate_interval": "4s", "__interval": "1s", "__range": strconv.Itoa(int(time.Since(p.Began).Seconds())) + "s",
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			values[v.Name] = choice(t, p, v.Name, substitute(t, v.Definition, values))
		}
	}
	asked := 0
	ask := func(title, expr string) {
		asked++
		query := substitute(t, expr, values)
		if n, err := p.Numbers(query); err != nil {
			t.Errorf("%s: %v\n%s", title, err, query)
		} else if n == 0 {
			t.Errorf("%s has no data:\n%s", title, query)
		}
	}
	for _, panel := range d.Panels {
		for _, q := range panel.Targets {
			ask(panel.Title, q.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		if a.Expr != "" {
			ask(a.Name, a.Expr)
		}
	}
	if asked < 50 {
		t.Errorf("only %d queries: has the form of the file changed?", asked)
	}
	t.Logf("%d queries of the dashboard have data", asked)
}

var grafanaVariable = regexp.MustCompile(`\$(\w+)`)

func substitute(t *testing.T, text string, values map[string]string) string {
	t.Helper()
	return grafanaVariable.ReplaceAllStringFunc(text, func(name string) string {
		v, ok := values[name[1:]]
		if !ok {
			t.Errorf("nothing to put for %s in %s", name, text)
		}
		return v
	})
}

// choice asks for the values of a variable and returns what *All* of them stands for.
func choice(t *testing.T, p *prometheus.Server, name, definition string) string {
	t.Helper()
	m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(definition)
	if m == nil {
		t.Fatalf("%s is %s", name, definition)
	}
	var values []string
	err := p.Get("/api/v1/label/"+m[2]+"/values", url.Values{"match[]": {m[1]}}, &values)
	if err != nil || len(values) == 0 {
		t.Errorf("the variable %s has no values: %v\n%s", name, err, definition)
	}
	if name != "instance" {
		return ".*"
	}
	for i, v := range values { // quoted for the expression, and once more for the string that it is in
		values[i] = strings.ReplaceAll(regexp.QuoteMeta(v), `\`, `\\`)
	}
	slices.Sort(values)
	return "(" + strings.Join(values, "|") + ")"
}

// checkMetricsPage has promtool read it.
func checkMetricsPage(t *testing.T, s *sidecar) {
	t.Helper()
	_, text := s.get(s.admin, "/metrics")
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
