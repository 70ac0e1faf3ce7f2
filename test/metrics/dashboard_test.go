package metrics

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDashboardPanels: what a person sees is complete, and nothing lies above something else.
func TestDashboardPanels(t *testing.T) {
	t.Parallel()
	d := loadDashboard(t)
	if d.UID != "amqp-sidecar" || d.Title == "" || d.Description == "" {
		t.Errorf("uid %q (links lead to it), title %q, description %q", d.UID, d.Title, d.Description)
	}
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	var rows []string
	for i := range d.Panels {
		p := &d.Panels[i]
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: its id %d is another's", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.GridPos == nil || p.GridPos.X < 0 || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W < 1 || p.GridPos.H < 1 {
			t.Errorf("%s: lies outside: %+v", p.Title, p.GridPos)
			continue
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[cell]; ok {
					t.Fatalf("%s lies above %s", p.Title, other)
				}
				taken[cell] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		checkPanel(t, p)
	}
	want := []string{"Messages", "App (HTTP)", "Retries and dead letters", "Flow", "Broker", "Published by the app", "Outbox", "Process and runtime", "Build info"}
	if !slices.Equal(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
}

func checkPanel(t *testing.T, p *panel) {
	t.Helper()
	// Those before Grafana 8 (graph, singlestat, table-old) are gone in Grafana 12.
	if !slices.Contains([]string{"stat", "timeseries", "state-timeline", "heatmap", "table"}, p.Type) {
		t.Errorf("%s is a %s", p.Title, p.Type)
	}
	if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
		t.Errorf("%q: title, description %q, unit %q and a query are wanted", p.Title, p.Description, p.FieldConfig.Defaults.Unit)
	}
	refs := map[string]bool{}
	for _, q := range p.Targets {
		if q.Expr == "" || q.LegendFormat == "" || refs[q.RefID] {
			t.Errorf("%s, query %s: %q with legend %q", p.Title, q.RefID, q.Expr, q.LegendFormat)
		}
		refs[q.RefID] = true
	}
}

// TestDashboardLinks lead to sections of the runbook.
func TestDashboardLinks(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"README": true}
	for _, a := range alerts(t) {
		known[a.name] = true
	}
	links := 0
	for _, p := range loadDashboard(t).Panels {
		for _, l := range p.Links {
			page, ok := strings.CutPrefix(l.URL, "${runbook}/")
			if !ok || !known[strings.TrimSuffix(page, ".md")] {
				t.Errorf("%s leads to %s", p.Title, l.URL)
			}
			links++
		}
	}
	if links < 20 {
		t.Errorf("only %d panels lead to the runbook", links)
	}
}

// TestDashboardVariables: each filter begins with everything, and works where a label is missing, as outside
// Kubernetes. The instances are listed by name instead, because they represent the choice of queue and pod: the metrics
// of the process have no such label.
func TestDashboardVariables(t *testing.T) {
	t.Parallel()
	var names []string
	for _, v := range loadDashboard(t).Templating.List {
		names = append(names, v.Name)
		if v.Type != "query" {
			continue
		}
		if want := map[bool]string{true: "", false: ".*"}[v.Name == "instance"]; !v.IncludeAll || v.AllValue != want || v.Label == "" {
			t.Errorf("%s: %+v", v.Name, v)
		}
		for _, used := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(string(v.Query), -1) {
			if !slices.Contains(names, used[1]) {
				t.Errorf("%s needs %s, which comes later", v.Name, used[1])
			}
		}
	}
	if !slices.Equal(names, []string{"datasource", "namespace", "job", "queue", "pod", "instance", "runbook"}) {
		t.Errorf("%v", names)
	}
}

// TestDashboardFiltersByQueue: a sidecar may consume several queues, so the choice of instances is not enough. Depths are
// chosen by the queue that is consumed. A line of one sidecar's queue is named by both.
func TestDashboardFiltersByQueue(t *testing.T) {
	t.Parallel()
	page := read(t, metricsPage)
	selector := regexp.MustCompile(`\b(sidecar_\w+)\{([^}]*)\}`)
	filtered := 0
	for _, p := range loadDashboard(t).Panels {
		for _, q := range p.Targets {
			for _, m := range selector.FindAllStringSubmatch(q.Expr, -1) {
				name := base(m[1], documented(t))
				want := regexp.MustCompile("(?m)^\\| `" + name + "` \\| \\w+ \\| [^|]*`queue`").MatchString(page)
				label := map[bool]string{true: "main", false: "queue"}[name == "sidecar_queue_messages_ready"]
				if strings.Contains(m[2], label+`=~"$queue"`) != want {
					t.Errorf("%s: has %s to be filtered by queue? %v\n%s", p.Title, name, want, q.Expr)
				}
				if want {
					filtered++
				}
				single := strings.HasPrefix(q.Expr, name) && strings.Contains(q.LegendFormat, "{{instance}}")
				if want && single && !strings.Contains(q.LegendFormat, "{{queue}}") {
					t.Errorf("%s: two queues of an instance have the legend %s", p.Title, q.LegendFormat)
				}
			}
		}
	}
	if filtered < 30 {
		t.Errorf("only %d queries are filtered by queue", filtered)
	}
}
