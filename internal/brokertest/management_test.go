package brokertest

import (
	"net/http"
	"testing"

	"sidecar/internal/testkit/must"
)

func TestManagement(t *testing.T) {
	t.Parallel()
	for range 2 {
		answer := must.Get(http.Get(Management(t) + "/api/overview"))(t)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("the management API answers %s to a request without a user", answer.Status)
		}
	}
}
