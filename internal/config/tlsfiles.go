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

// checkCAFile refuses files that could never verify a certificate. The file is read again for each connection.
func (l *loader) checkCAFile(name, path string) {
	if path == "" || !l.ok(name) {
		return
	}
	b, _, err := readRegular(path, maxPEM)
	if err != nil {
		l.reject(name, "%v", err)
		return
	}
	if err := checkCertificates(b, time.Now()); err != nil {
		l.reject(name, "%v", err)
	}
}

// checkCertificates wants at least one certificate that has not expired: bundles keep old ones around.
func checkCertificates(b []byte, now time.Time) error {
	found, expired := 0, 0
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return errors.New("holds a certificate that cannot be parsed")
		}
		found++
		if now.After(c.NotAfter) {
			expired++
		}
	}
	if found == 0 {
		return errors.New("holds no PEM certificate")
	}
	if found == expired {
		return errors.New("every certificate in it has expired")
	}
	return nil
}

func (l *loader) checkKeyPair(certName, certPath, keyName, keyPath string) {
	if !l.ok(certName, keyName) || (certPath == "" && keyPath == "") {
		return
	}
	if keyPath == "" {
		l.reject(certName, "a certificate needs its key: set %s", keyName)
		return
	}
	if certPath == "" {
		l.reject(keyName, "a key needs its certificate: set %s", certName)
		return
	}
	cert, _, certErr := readRegular(certPath, maxPEM)
	if certErr != nil {
		l.reject(certName, "%v", certErr)
	}
	key, _, keyErr := readRegular(keyPath, maxPEM)
	if keyErr != nil {
		l.reject(keyName, "%v", keyErr)
	}
	if certErr != nil || keyErr != nil {
		return
	}
	if err := checkCertificates(cert, time.Now()); err != nil {
		l.reject(certName, "%v", err)
		return
	}
	if block, _ := pem.Decode(key); block == nil {
		l.reject(keyName, "holds no PEM key")
		return
	}
	pair, err := tls.X509KeyPair(cert, key)
	switch {
	case err != nil:
		l.reject(keyName, "does not go with %s: %v", certName, err)
	case pair.Leaf != nil && time.Now().After(pair.Leaf.NotAfter):
		l.reject(certName, "the certificate has expired")
	}
}
