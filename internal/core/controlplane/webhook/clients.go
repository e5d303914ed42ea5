package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
)

// Clients determines which client certificates the webhook accepts: those of the API servers.
type Clients struct {
	file  string
	names []string
	roots atomic.Pointer[x509.CertPool]
}

// NewClients reads the file with the roots that sign the clients' certificates. Names lists the accepted
// common names; if it is empty, all are accepted. It fails if the file contains no certificate.
func NewClients(file string, names []string) (*Clients, error) {
	c := &Clients{file: file, names: names}
	return c, c.Reload()
}

// Reload reads the file again, for later handshakes. Existing connections stay open.
func (c *Clients) Reload() error {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return fmt.Errorf("%s: want certificates in PEM", c.file)
	}
	c.roots.Store(roots)
	return nil
}

// Name returns the common name of a client whose certificate [Clients] accepted.
func Name(state tls.ConnectionState) (string, error) {
	if len(state.PeerCertificates) == 0 {
		return "", errors.New("the client sent no certificate")
	}
	return state.PeerCertificates[0].Subject.CommonName, nil
}

// require makes a server reject, in the handshake, all clients that c does not accept.
func (c *Clients) require(base *tls.Config) {
	with := base.Clone()
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		one := with.Clone()
		one.ClientAuth, one.ClientCAs = tls.RequireAndVerifyClientCert, c.roots.Load()
		one.VerifyConnection = func(state tls.ConnectionState) error {
			name, err := Name(state)
			if err == nil && len(c.names) > 0 && !slices.Contains(c.names, name) {
				err = fmt.Errorf("the client is %q: want one of %q", name, c.names)
			}
			return err
		}
		return one, nil
	}
}
