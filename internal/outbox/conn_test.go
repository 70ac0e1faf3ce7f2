package outbox

import (
	"errors"
	"strings"
	"testing"
)

// TestBadDSN: a connection string that cannot be used is refused with the reason, and never with the password.
func TestBadDSN(t *testing.T) {
	t.Parallel()
	const word = "s3cr3t"
	for dsn, says := range map[string]string{
		"postgres://u:s3cr3t@db/shop?sslmode=maybe":          "sslmode",
		"postgres://u:s3cr3t@db:port/shop":                   "port",
		"postgres://u:s3cr3t%@db/shop":                       "percent-encoded",
		"postgres://u:x@s3cr3t@db/shop":                      "percent-encoded",
		"postgres://u:12/s3cr3t@db/shop":                     "percent-encoded",
		"postgres://u:s3cr3t@db/shop?sslrootcert=/not/there": "/not/there",
		"host=db password='s3cr3t":                           "host=",
		"host=db password=s3cr3t sslmode=`: maybe":           "",
		"s3cr3t":                   "host=",
		"mysql://u:s3cr3t@db/shop": "begins with postgres://",
	} {
		_, err := CheckDSN(dsn)
		if says == "" && err == nil {
			continue // the driver makes something of it
		}
		if !errors.Is(err, ErrDSN) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want it to say %q", dsn, err, says)
		}
	}
}

func TestGoodDSN(t *testing.T) {
	t.Parallel()
	for dsn, plaintext := range map[string]string{
		"postgres://u:p@db.example/shop":                      "db.example", // sslmode=prefer
		"postgres://u:p@db.example/shop?sslmode=require":      "",
		"postgresql://u@localhost/shop?sslmode=disable":       "",
		"postgres://u:p%40w@localhost/a%40b?user=me@here":     "",
		"host=localhost user=me@here password=p@w dbname=a@b": "",
		"host=/run/postgresql dbname=shop":                    "",
		"host=127.0.0.1,db.example dbname=shop sslmode=allow": "db.example",
	} {
		if got, err := CheckDSN(dsn); err != nil || got != plaintext {
			t.Errorf("%s: plaintext to %q, want %q; %v", dsn, got, plaintext, err)
		}
	}
}

// TestConnectFails: an error of a connect does not show the password, and names a file that cannot be read.
func TestConnectFails(t *testing.T) {
	t.Parallel()
	for says, d := range map[string]Database{
		"connect to the database": {DSN: func() (string, error) { return "postgres://u:s3cr3t@127.0.0.1:1/shop?sslmode=disable", nil }},
		"no such file":            {DSN: func() (string, error) { return "", errors.New("no such file") }},
	} {
		if _, err := d.Connect(t.Context(), nil); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
