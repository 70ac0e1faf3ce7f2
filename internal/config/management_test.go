package config

import (
	"os"
	"path/filepath"
	"testing"

	"sidecar/internal/testkit/must"
)

func TestManagement(t *testing.T) {
	t.Parallel()
	const url, amqp = "SIDECAR_MANAGEMENT_URL=", "SIDECAR_AMQP_URL=amqp://me:%40pw@127.0.0.1"
	for _, tc := range []struct {
		env                     []string
		address, user, password string
	}{
		{nil, "", "", ""},
		{[]string{url + "http://h:1/x"}, "http://h:1/x", "guest", "guest"},
		{[]string{url + "http://h", "SIDECAR_AMQP_URL=amqp://127.0.0.1,amqp://me:pw@h"}, "http://h", "guest", "guest"},
		{[]string{url + "http://h", amqp}, "http://h", "me", "@pw"},
		{[]string{url + "http://h", amqp, "SIDECAR_AMQP_USERNAME=u", "SIDECAR_AMQP_PASSWORD=p"}, "http://h", "u", "p"},
		{[]string{url + "http://u2:p%2F2@h", amqp}, "http://h", "u2", "p/2"},
	} {
		address, user, password, err := load(t, tc.env...).AMQP.Management()
		if address != tc.address || user != tc.user || password != tc.password || err != nil {
			t.Errorf("%q: %q %q %q %v", tc.env, address, user, password, err)
		}
	}
}

// TestManagementReadsFilesAgain: what cannot be read any more is an error, not the last good value.
func TestManagementReadsFilesAgain(t *testing.T) {
	t.Parallel()
	for _, variable := range []string{"SIDECAR_MANAGEMENT_URL", "SIDECAR_AMQP_URL", "SIDECAR_AMQP_USERNAME", "SIDECAR_AMQP_PASSWORD"} {
		file := filepath.Join(t.TempDir(), "f")
		content, env := "http://h", []string{variable + "_FILE=" + file}
		if variable != managementURL {
			content, env = "amqp://u:p@127.0.0.1/", append(env, managementURL+"=http://h")
		}
		write(t, file, content)
		c := load(t, env...)
		must.Do(t, os.Remove(file))
		if address, user, password, err := c.AMQP.Management(); err == nil || address+user+password != "" {
			t.Errorf("%s: %q %q %v", variable, address, user, err)
		}
	}
}
