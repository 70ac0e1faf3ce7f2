package metrics

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
