// Package metrics checks the alert rules and the dashboard for what can be said without running anything: they are well
// formed, the rules do what their tests in test/alerts say, and everything they name is documented. Package test puts
// them to use on a real sidecar.
package metrics

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"sidecar/internal/testkit/must"
)

const (
	alertsFile    = "../../deploy/helm/amqp-sidecar/files/alerts.yaml"
	dashboardFile = "../../deploy/helm/amqp-sidecar/files/dashboard.json"
	metricsPage   = "../../docs/metrics.md"
	logs          = "../../docs/logs.md"
	runbooks      = "../../docs/runbooks"
)

func read(t *testing.T, file string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(file))(t)) // #nosec G304 -- a file of this repository
}

// promtool runs it; Debian's package prometheus has it.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil { // #nosec G204 -- the test's own arguments
		t.Errorf("promtool %q: %v\n%s", args, err, out)
	}
}

// alert is what the file says of one, without its expression.
type alert struct{ name, severity, runbook string }

var alertParts = regexp.MustCompile(`(?s)- alert: (\w+)\n.*?severity: (\w+)\n.*?runbook_url: (\S+)\n`)

func alerts(t *testing.T) []alert {
	t.Helper()
	var list []alert
	for _, m := range alertParts.FindAllStringSubmatch(read(t, alertsFile), -1) {
		list = append(list, alert{m[1], m[2], m[3]})
	}
	if len(list) < 11 {
		t.Fatalf("only %d rules are found: has the form of the file changed?", len(list))
	}
	return list
}

// dashboard is the part of Grafana's model that the tests check.
type dashboard struct {
	UID, Title, Description string
	Panels                  []panel
	Templating              struct{ List []variable }
	Annotations             struct{ List []struct{ Name, Expr string } }
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  *struct{ X, Y, W, H int }
	Targets                  []struct{ RefID, Expr, LegendFormat string }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Links                    []struct{ URL string }
}

type variable struct {
	Name, Type, Label, AllValue string
	IncludeAll                  bool
	Query                       json.RawMessage
}

func loadDashboard(t *testing.T) *dashboard {
	t.Helper()
	var d dashboard
	must.Do(t, json.Unmarshal([]byte(read(t, dashboardFile)), &d))
	if len(d.Panels) < 40 {
		t.Fatalf("only %d panels are found: has the form of the file changed?", len(d.Panels))
	}
	return &d
}
