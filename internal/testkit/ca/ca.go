// Package ca issues certificates for tests.
package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// Authority issues certificates for one test and keeps the files in a directory of the test.
type Authority struct {
	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

// New makes a certificate authority; its own certificate is in CAFile.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir()}
	a.key = newKey(t)
	template := a.template("test authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key))(t)
	a.cert = must.Get(x509.ParseCertificate(der))(t)
	writePEM(t, a.CAFile(), "CERTIFICATE", der)
	return a
}

// CAFile is the PEM file with the authority's certificate.
func (a *Authority) CAFile() string { return filepath.Join(a.dir, "ca.pem") }

// Pool holds the authority's certificate.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Issue writes NAME.pem and NAME.key for a certificate with the common name and the hosts, names or addresses, and
// returns the files. Issuing a name again replaces its files, as a rotation does.
func (a *Authority) Issue(t testing.TB, name string, hosts ...string) (certFile, keyFile string) {
	t.Helper()
	template := a.template(name)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	key := newKey(t)
	der := must.Get(x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key))(t)
	keyDER := must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", keyDER)
	return certFile, keyFile
}

// ServerConfig is a server's configuration with a certificate for hosts.
func (a *Authority) ServerConfig(t testing.TB, hosts ...string) *tls.Config {
	t.Helper()
	pair := must.Get(tls.LoadX509KeyPair(a.Issue(t, "server", hosts...)))(t)
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

func (a *Authority) template(name string) *x509.Certificate {
	a.serial++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	return must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
