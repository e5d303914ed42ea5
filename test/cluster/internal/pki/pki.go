// Package pki makes the certificates of a test cluster: one authority, one key
// pair for each identity, and a kubeconfig for each client.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity is longer than any cluster lives: each gets an authority of its own.
const validity = 30 * 24 * time.Hour

// An Authority signs certificates and writes them to its directory.
type Authority struct {
	dir  string
	cert *x509.Certificate
	der  []byte
	key  *ecdsa.PrivateKey
}

// An Identity is the subject of a certificate.
type Identity struct {
	Name   string   // of the user or the server
	Groups []string // what the API server takes as the groups of the user
	Hosts  []string // names and addresses; with any, it is a server's certificate
}

// New makes an authority and writes ca.crt and ca.key to dir.
func New(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(pkix.Name{CommonName: "test cluster"})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &Authority{dir: dir, cert: cert, der: der, key: key}
	return a, a.write("ca", der, key)
}

// Issue writes file.crt and file.key for id.
func (a *Authority) Issue(file string, id Identity) error {
	_, _, err := a.issue(file, id)
	return err
}

// IssueKey writes file.key, a key without a certificate.
func (a *Authority) IssueKey(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return a.write(file, nil, key)
}

// IssueClient writes file.crt and file.key for id, and to kubeconfig the
// configuration of a client that is id and talks to server. It holds keys and
// certificates itself, so that it works wherever it is copied to.
func (a *Authority) IssueClient(file, kubeconfig, server string, id Identity) error {
	cert, key, err := a.issue(file, id)
	if err != nil {
		return err
	}
	return os.WriteFile(kubeconfig, newKubeconfig(server, id.Name, a.der, cert, key), 0o600)
}

func (a *Authority) issue(file string, id Identity) (der []byte, key *ecdsa.PrivateKey, err error) {
	key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template, err := newTemplate(pkix.Name{CommonName: id.Name, Organization: id.Groups})
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, h := range id.Hosts {
		template.ExtKeyUsage[0] = x509.ExtKeyUsageServerAuth
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err = x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing %s: %w", file, err)
	}
	return der, key, a.write(file, der, key)
}

func (a *Authority) write(file string, cert []byte, key *ecdsa.PrivateKey) error {
	path := filepath.Join(a.dir, file)
	if cert != nil {
		if err := os.WriteFile(path+".crt", certPEM(cert), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(path+".key", keyPEM(key), 0o600)
}

func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		return nil, err
	}
	// From an hour ago: a clock that is set back a little breaks nothing.
	from := time.Now().Add(-time.Hour)
	return &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: from, NotAfter: from.Add(validity)}, nil
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) []byte {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		panic(err) // only for curves that Go does not support
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}
