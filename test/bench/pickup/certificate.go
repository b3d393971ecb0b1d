package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"
)

// host is whom the certificate is for.
const host = "service.example.com"

// certificate is a server like those of AWS: a chain of RSA keys with 2048 bits, root, intermediate and leaf.
func certificate() (*tls.Config, *x509.CertPool, error) {
	var chain [][]byte
	var parent *x509.Certificate
	var signer, key *rsa.PrivateKey
	roots := x509.NewCertPool()
	for i, name := range []string{"root", "intermediate", host} {
		var err error
		if key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			return nil, nil, err
		}
		one := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name}, DNSNames: []string{host},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			BasicConstraintsValid: true, IsCA: name != host, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		}
		if parent == nil {
			parent, signer = one, key
		}
		der, err := x509.CreateCertificate(rand.Reader, one, parent, &key.PublicKey, signer)
		if err != nil {
			return nil, nil, fmt.Errorf("make a certificate: %w", err)
		}
		if parent, err = x509.ParseCertificate(der); err != nil {
			return nil, nil, err
		}
		signer = key
		if name == "root" {
			roots.AddCert(parent)
		} else {
			chain = append([][]byte{der}, chain...)
		}
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: chain, PrivateKey: key}}, MinVersion: tls.VersionTLS13}, roots, nil
}
