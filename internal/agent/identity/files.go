package identity

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"outrider.dev/internal/agent/envoy"
	"outrider.dev/internal/identity/pemfile"
)

// Files of [Options.OutputDir]: Istio's names.
const (
	ChainFile = "cert-chain.pem"
	KeyFile   = "key.pem"
	RootFile  = "root-cert.pem"
)

// held is a certificate with its key.
type held struct {
	key    crypto.Signer
	chain  []*x509.Certificate // the leaf, and what is between it and its root
	reused bool
	born   time.Time // when the agent got it
}

func (h *held) leaf() *x509.Certificate { return h.chain[0] }

// write replaces a file that only its owner reads, by rename, unless it is the same
// already: Envoy reads both secrets again on each rename in the directory. It is not
// synced, since a certificate that a crash of the machine loses is asked for again.
func write(path string, content []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// writeRoots tells Envoy, and who reads the output files, whom to trust.
func (k *Keeper) writeRoots(roots []*x509.Certificate) error {
	text := pemfile.Write(roots...)
	secret, err := envoy.Roots(text)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(k.o.Dir, envoy.RootsFile), secret); err != nil {
		return err
	}
	if k.o.OutputDir == "" {
		return nil
	}
	return write(filepath.Join(k.o.OutputDir, RootFile), text)
}

// writeSecret gives Envoy the certificate and its key, in one file.
func (k *Keeper) writeSecret(h *held) error {
	chain := pemfile.Write(h.chain...)
	key, err := pemfile.WriteKey(h.key)
	if err != nil {
		return err
	}
	secret, err := envoy.Secret(chain, key)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(k.o.Dir, envoy.SecretFile), secret); err != nil {
		return err
	}
	if k.o.OutputDir == "" {
		return nil
	}
	return errors.Join(write(filepath.Join(k.o.OutputDir, KeyFile), key), write(filepath.Join(k.o.OutputDir, ChainFile), chain))
}

// inline is bytes inside of a secret.
type inline struct {
	Bytes []byte `json:"inline_bytes"`
}

// A secrets is what [envoy.Secret] and [envoy.Roots] write.
type secrets struct {
	Resources []struct {
		Certificate struct {
			Chain inline `json:"certificate_chain"`
			Key   inline `json:"private_key"`
		} `json:"tls_certificate"`
		Validation struct {
			Roots inline `json:"trusted_ca"`
		} `json:"validation_context"`
	} `json:"resources"`
}

// errNone says that a file holds no secret yet.
var errNone = errors.New("no secret in it")

func readSecrets(path string) (s secrets, err error) {
	raw, err := read(path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, errors.New("no JSON of a secret") // whose bytes stay out of messages
	}
	if len(s.Resources) != 1 {
		return s, errNone
	}
	return s, nil
}

// readHeld reads back what writeSecret wrote.
func readHeld(dir string) (*held, error) {
	s, err := readSecrets(filepath.Join(dir, envoy.SecretFile))
	if err != nil {
		return nil, err
	}
	return pair(s.Resources[0].Certificate.Chain.Bytes, s.Resources[0].Certificate.Key.Bytes)
}

// readRoots reads back the roots that a control plane told an earlier agent.
func readRoots(dir string) []*x509.Certificate {
	s, err := readSecrets(filepath.Join(dir, envoy.RootsFile))
	if err != nil {
		return nil
	}
	roots, err := pemfile.Certificates(s.Resources[0].Validation.Roots.Bytes)
	if err != nil {
		return nil
	}
	return roots
}

// pair reads a chain and its key.
func pair(chain, key []byte) (*held, error) {
	certs, err := pemfile.Certificates(chain)
	if err != nil {
		return nil, err
	}
	k, err := pemfile.PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if !pemfile.Fits(certs[0], k) {
		return nil, errors.New("the key is another certificate's")
	}
	return &held{key: k, chain: certs}, nil
}

// fits checks that a certificate is id's, that it is valid, and that others who trust
// roots will take it.
func (h *held) fits(id ID, roots []*x509.Certificate, now time.Time) error {
	leaf := h.leaf()
	if !pemfile.Fits(leaf, h.key) {
		return errors.New("it is for another key than the one that asked")
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].String() != id.String() {
		return fmt.Errorf("it names %v and not %s", leaf.URIs, id)
	}
	if err := h.valid(now); err != nil {
		return err
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: pool(roots), Intermediates: pool(h.chain[1:]), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// valid checks a certificate's time.
func (h *held) valid(now time.Time) error {
	leaf := h.leaf()
	if now.Before(leaf.NotBefore) || !now.Before(leaf.NotAfter) {
		return fmt.Errorf("it is valid from %s to %s; is a clock wrong?", leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
