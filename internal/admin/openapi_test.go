package admin

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/openapitest"
)

// TestTheDocumentHasEveryRoute, and nothing else.
func TestTheDocumentHasEveryRoute(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.DeadLetters = away(t, o.Logger) })
	name := regexp.MustCompile(`\{[a-z]+\}`)
	var documented, routed []string
	for _, op := range openapitest.Load(t, []byte(openAPIDocument)).Operations() {
		documented = append(documented, name.ReplaceAllString(op, "{}"))
	}
	for path, route := range r.controlRoutes() {
		path = strings.ReplaceAll(path, "/admin/dlq/queues/"+"wms.dlq.wms-a"+"/", "/admin/dlq/queues/{}/")
		routed = append(routed, route.Method+" "+name.ReplaceAllString(path, "{}"))
	}
	slices.Sort(documented)
	slices.Sort(routed)
	if !slices.Equal(documented, routed) {
		t.Errorf("documented: %v\nserved: %v", documented, routed)
	}
}

func TestTheDocumentIsServed(t *testing.T) {
	t.Parallel()
	r := start(t, withTokens)
	got := r.do(http.MethodGet, r.control, "/openapi.json", authorized("Bearer "+readToken))
	if got.StatusCode != http.StatusOK || got.body != openAPIDocument {
		t.Errorf("%d %.100s", got.StatusCode, got.body)
	}
}
