package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"time"
)

// maxPEM bounds a certificate or key file, in bytes. The system's own bundle has about 200 KiB.
const maxPEM = 1 << 20

// checkCertificateFile wants at least one certificate that has not expired: bundles keep old ones around.
func checkCertificateFile(path string) error {
	b, _, err := readRegular(path, maxPEM)
	if err != nil {
		return err
	}
	valid, why := false, errors.New("holds no PEM certificate")
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return errors.New("holds a certificate that cannot be parsed")
		}
		valid, why = valid || time.Now().Before(c.NotAfter), errors.New("every certificate in it has expired")
	}
	if valid {
		return nil
	}
	return why
}

// checkKeyPair checks the files of a client certificate and its key, each of which needs the other.
func (l *loader) checkKeyPair(cert, key *Variable) {
	switch {
	case cert.text == "" && key.text == "":
		return
	case key.text == "":
		l.reject(cert.Name, "a certificate needs its key: set %s", key.Name)
		return
	case cert.text == "":
		l.reject(key.Name, "a key needs its certificate: set %s", cert.Name)
		return
	}
	chain, _, err := readRegular(cert.text, maxPEM)
	if err != nil {
		l.reject(cert.Name, "%v", err)
	}
	secret, _, err := readRegular(key.text, maxPEM)
	if err != nil {
		l.reject(key.Name, "%v", err)
	}
	if cert.bad || key.bad {
		return
	}
	pair, err := tls.X509KeyPair(chain, secret)
	switch {
	case err != nil:
		l.reject(key.Name, "does not go with %s: %v", cert.from, err)
	case pair.Leaf != nil && time.Now().After(pair.Leaf.NotAfter):
		l.reject(cert.Name, "the certificate has expired")
	}
}
