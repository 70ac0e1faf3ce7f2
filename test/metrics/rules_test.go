package metrics

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

func TestRules(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", alertsFile)
	files, err := filepath.Glob("../alerts/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%v: %v", files, err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			promtool(t, "test", "rules", narrowed(t, f))
		})
	}
}

// narrowed is a copy of a file of test/alerts with those rules alone that it names: promtool evaluates all rules that it
// has, for every minute of every case.
func narrowed(t *testing.T, file string) string {
	t.Helper()
	dir, test := t.TempDir(), read(t, file)
	rules := strings.SplitAfter(read(t, alertsFile), "      - alert: ")
	kept := rules[0]
	for _, rule := range rules[1:] {
		if name, _, _ := strings.Cut(rule, "\n"); regexp.MustCompile(`alertname: ` + name + `\b`).MatchString(test) {
			kept += rule
		}
	}
	for name, text := range map[string]string{
		"alerts.yaml": strings.TrimSuffix(kept, "- alert: "), "test.yaml": strings.Replace(test, alertsFile, "alerts.yaml", 1),
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return filepath.Join(dir, "test.yaml")
}

// TestEveryAlertIsTested with a case in which it fires and one in which it does not.
func TestEveryAlertIsTested(t *testing.T) {
	t.Parallel()
	files := must.Get(filepath.Glob("../alerts/*.yaml"))(t)
	var tests strings.Builder
	for _, f := range files {
		tests.WriteString(read(t, f))
	}
	for _, a := range alerts(t) {
		if !regexp.MustCompile(`alertname: ` + a.name + `\n +eval_time: .*\n +exp_alerts:`).MatchString(tests.String()) {
			t.Errorf("no test of %s makes it fire", a.name)
		}
		if !strings.Contains(tests.String(), "{alertname: "+a.name+", eval_time: ") {
			t.Errorf("no test of %s keeps it quiet", a.name)
		}
	}
}

// TestRunbook: every alert leads to a page of its own in docs/runbooks, and every such page has an alert.
func TestRunbook(t *testing.T) {
	t.Parallel()
	var headings []string
	for _, e := range must.Get(os.ReadDir(runbooks))(t) {
		name := strings.TrimSuffix(e.Name(), ".md")
		if name == "README" {
			continue
		}
		if page := read(t, filepath.Join(runbooks, e.Name())); !strings.HasPrefix(page, "# "+name+"\n") {
			t.Errorf("%s has another heading than its name", e.Name())
		}
		headings = append(headings, name)
	}
	var names []string
	for _, a := range alerts(t) {
		if want := "docs/runbooks/" + a.name + ".md"; a.runbook != want {
			t.Errorf("%s leads to %s, not to %s", a.name, a.runbook, want)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, a.severity) {
			t.Errorf("%s has the severity %s", a.name, a.severity)
		}
		names = append(names, a.name)
	}
	slices.Sort(headings)
	slices.Sort(names)
	if names = slices.Compact(names); !slices.Equal(headings, names) {
		t.Errorf("pages %v, alerts %v", headings, names)
	}
}

// TestSelectorsCanBeNarrowed: the chart and others replace the matcher of the job.
func TestSelectorsCanBeNarrowed(t *testing.T) {
	t.Parallel()
	for i, line := range strings.Split(read(t, alertsFile), "\n") {
		if strings.Contains(line, "`") || strings.HasPrefix(strings.TrimSpace(line), "#") { // text
			continue
		}
		for _, m := range regexp.MustCompile(`\b(?:sidecar|process)_\w+`).FindAllStringIndex(line, -1) {
			if !strings.HasPrefix(line[m[1]:], `{job=~".+"`) {
				t.Errorf("line %d: %s has no job=~\".+\" at its beginning", i+1, line[m[0]:m[1]])
			}
		}
	}
}

// TestComposeConfig: what docker-compose.yml mounts into Prometheus.
func TestComposeConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, from := range map[string]string{"prometheus.yml": "../../deploy/compose/prometheus.yml", "alerts.yaml": alertsFile} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(read(t, from)), 0o600))
	}
	promtool(t, "check", "config", filepath.Join(dir, "prometheus.yml"))
}

var metricName = regexp.MustCompile(`\bsidecar_\w+`)

// documented is the metrics of docs/metrics.md.
func documented(t *testing.T) []string {
	t.Helper()
	section := read(t, metricsPage)
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(sidecar_\\w+)` \\|").FindAllStringSubmatch(section, -1) {
		names = append(names, m[1])
	}
	if len(names) < 20 {
		t.Fatalf("only %v are documented: has the form of the tables changed?", names)
	}
	return names
}

// base is the name as documented: a histogram's series have a suffix.
func base(name string, known []string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if b, ok := strings.CutSuffix(name, suffix); ok && slices.Contains(known, b) {
			return b
		}
	}
	return name
}

// TestNamesAreDocumented, and whatever is documented has its place on the dashboard.
func TestNamesAreDocumented(t *testing.T) {
	t.Parallel()
	known := documented(t)
	shown := map[string]bool{}
	for _, p := range loadDashboard(t).Panels {
		for _, q := range p.Targets {
			for _, name := range metricName.FindAllString(q.Expr, -1) {
				shown[base(name, known)] = true
				if !slices.Contains(known, base(name, known)) {
					t.Errorf("%s asks for %s", p.Title, name)
				}
			}
		}
	}
	for _, name := range known {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
	for _, name := range metricName.FindAllString(read(t, alertsFile), -1) {
		if !slices.Contains(known, base(name, known)) {
			t.Errorf("an alert asks for %s", name)
		}
	}
}
