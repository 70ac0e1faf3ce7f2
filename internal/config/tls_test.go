package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

// certificate makes a self-signed certificate and its key in PEM.
func certificate(t testing.TB, notAfter time.Time) (cert, key string) {
	t.Helper()
	k := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: notAfter.Add(-time.Hour), NotAfter: notAfter,
	}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k))(t)
	private := must.Get(x509.MarshalPKCS8PrivateKey(k))(t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

func TestTLSFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		write(t, path, content)
		return path
	}
	cert, key := certificate(t, time.Now().Add(time.Hour))
	_, otherKey := certificate(t, time.Now().Add(time.Hour))
	oldCert, oldKey := certificate(t, time.Now().Add(-time.Hour))
	good, goodKey := file("good", cert), file("good.key", key)
	mismatch, old, expiredKey := file("other.key", otherKey), file("old", oldCert), file("old.key", oldKey)
	bundle := file("bundle", "# comment\n"+oldCert+key+cert)
	chain := file("chain", oldCert+cert)
	text := file("text", "not PEM "+canary)
	broken := file("broken", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(canary)})))
	large := file("large", strings.Repeat("x", maxPEM+1))

	const ca, crt, k = "SIDECAR_AMQP_TLS_CA_FILE", "SIDECAR_AMQP_TLS_CERT_FILE", "SIDECAR_AMQP_TLS_KEY_FILE"
	for _, tc := range []struct {
		variable, says string
		env            []string
	}{
		{"", "", []string{ca + "=" + good}},
		{"", "", []string{ca + "=" + bundle}},
		{"", "", []string{crt + "=" + good, k + "=" + goodKey}},
		{ca, "no such file", []string{ca + "=" + filepath.Join(dir, "none")}},
		{ca, "must be a regular file", []string{ca + "=" + dir}},
		{ca, "larger than 1MiB", []string{ca + "=" + large}},
		{ca, "no PEM certificate", []string{ca + "=" + text}},
		{ca, "no PEM certificate", []string{ca + "=" + goodKey}},
		{ca, "cannot be parsed", []string{ca + "=" + broken}},
		{ca, "has expired", []string{ca + "=" + old}},
		{crt, "needs its key", []string{crt + "=" + good}},
		{k, "needs its certificate", []string{k + "=" + goodKey}},
		{crt, "no such file", []string{crt + "=" + filepath.Join(dir, "none"), k + "=" + goodKey}},
		{k, "no such file", []string{crt + "=" + good, k + "=" + filepath.Join(dir, "none")}},
		{k, "does not go with", []string{crt + "=" + good, k + "=" + mismatch}},
		{k, "in key input", []string{crt + "=" + good, k + "=" + text}},
		{k, "in certificate input", []string{crt + "=" + text, k + "=" + goodKey}},
		{crt, "has expired", []string{crt + "=" + old, k + "=" + expiredKey}},
		{crt, "has expired", []string{crt + "=" + chain, k + "=" + expiredKey}}, // its leaf has
	} {
		env := append([]string{"SIDECAR_AMQP_URL=amqps://me:pw@rabbit"}, tc.env...)
		if tc.variable == "" {
			load(t, env...)
			continue
		}
		refuseSaying(t, tc.says, tc.variable, env...)
	}
	// TLS settings next to plaintext URLs: the user who wrote them believes the link to be encrypted.
	refuse(t, ca, ca+"="+good)
	load(t, ca+"="+good, "SIDECAR_AMQP_URL=amqp://127.0.0.1,amqps://me@rabbit")
	load(t, ca+"="+good, "SIDECAR_MANAGEMENT_URL=https://rabbit")
	refuse(t, ca, ca+"="+good, "SIDECAR_MANAGEMENT_URL=http://rabbit")

	external := []string{crt + "=" + good, k + "=" + goodKey, "SIDECAR_AMQP_URL=amqps://rabbit"}
	refuseSaying(t, "needs a user and a password", managementURL, append(external, "SIDECAR_MANAGEMENT_URL=https://rabbit")...)
	refuseSaying(t, "both a user and a password", managementURL, append(external, "SIDECAR_MANAGEMENT_URL=https://me@rabbit")...)
	load(t, append(external, "SIDECAR_MANAGEMENT_URL=https://me:pw@rabbit")...)

	if c := load(t, external...); !c.AMQP.External() || len(c.Warnings()) != 0 {
		t.Errorf("a certificate alone is not the user, or warned of: %q", c.Warnings())
	}
	for _, named := range []string{
		"SIDECAR_AMQP_USERNAME=me", "SIDECAR_AMQP_PASSWORD=pw", "SIDECAR_AMQP_URL=amqps://me@rabbit",
		"SIDECAR_AMQP_URL=amqps://rabbit,amqps://me:pw@rabbit-1", "SIDECAR_AMQP_URL=amqps://rabbit,amqp://127.0.0.1",
	} {
		if load(t, named, external[0], external[1], external[2]).AMQP.External() {
			t.Errorf("%s: the certificate is the user", named)
		}
	}
}

// TestAMQPURLMeansTheSameToTheClient compares what is documented, and what checks rely on, with the client library.
func TestAMQPURLMeansTheSameToTheClient(t *testing.T) {
	t.Parallel()
	for raw, vhost := range map[string]string{
		"amqp://h": "/", "amqp://h/": "/", "amqp://h/%2f": "/", "amqp://h/%2F": "/", "amqp://h:1234/orders": "orders", "amqps://me@h/a%2fb": "a/b",
		"amqp://u:p@ss@h/%40x": "@x", "amqps://u:p%40%2f%3a%23@[::1]:5671/v": "v", "amqp://h/%2fx": "/x",
	} {
		e, err := parseAMQPURL(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		u, err := amqp.ParseURI(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if u.Vhost != vhost {
			t.Errorf("%s: vhost %q, documented is %q", raw, u.Vhost, vhost)
		}
		if u.Host != e.Hostname() || u.Scheme != e.Scheme || e.User != nil && u.Username != e.User.Username() || e.User == nil && u.Username != "guest" {
			t.Errorf("%s: the client reads %+v, the checks %+v", raw, u, e)
		}
	}
}

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

// TestBundleWithAnExpiredCertificate: one authority that is valid is enough, wherever it stands.
func TestBundleWithAnExpiredCertificate(t *testing.T) {
	t.Parallel()
	valid, _ := certificate(t, time.Now().Add(time.Hour))
	expired, _ := certificate(t, time.Now().Add(-time.Hour))
	for _, bundle := range []string{valid + expired, expired + valid} {
		path := filepath.Join(t.TempDir(), "ca.pem")
		must.Do(t, os.WriteFile(path, []byte(bundle), 0o600))
		if err := checkCertificateFile(path); err != nil {
			t.Error(err)
		}
	}
}
