package identity

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"outrider.dev/internal/base/atomicfile"
	"outrider.dev/internal/base/wire"
)

// Files in [Options.OutputDir], with Istio's names.
const (
	ChainFile = "cert-chain.pem"
	KeyFile   = "key.pem"
	RootFile  = "root-cert.pem"
)

// Files in [Options.Dir]. The key is in the same file as its certificate, so that neither exists
// without the other.
const (
	storedCertificate = "workload.pem"
	storedRoots       = "roots.pem"
)

// held is a certificate with its key.
type held struct {
	key    crypto.Signer
	chain  []*x509.Certificate // the leaf, and the certificates between it and its root
	reused bool
	born   time.Time // when the agent got it
}

func (h *held) leaf() *x509.Certificate { return h.chain[0] }

// write replaces a file that only its owner may read, unless the content is the same. It does not
// sync: if a crash of the machine loses a certificate, a new one is requested.
func write(path string, content []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	return atomicfile.Write(path, content, 0o600)
}

// giveRoots stores the trusted roots, passes them to Envoy, and writes the output file.
func (k *Keeper) giveRoots(roots []*x509.Certificate) error {
	text := wire.MarshalCertificates(roots...)
	if err := write(filepath.Join(k.o.Dir, storedRoots), text); err != nil {
		return err
	}
	k.o.OnRoots(text)
	if k.o.OutputDir == "" {
		return nil
	}
	return write(filepath.Join(k.o.OutputDir, RootFile), text)
}

// giveCertificate stores a certificate and its key, passes them to Envoy, and writes the output
// files.
func (k *Keeper) giveCertificate(h *held) error {
	chain := wire.MarshalCertificates(h.chain...)
	key, err := wire.MarshalKey(h.key)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(k.o.Dir, storedCertificate), slices.Concat(key, chain)); err != nil {
		return err
	}
	k.o.OnCertificate(chain, key)
	if k.o.OutputDir == "" {
		return nil
	}
	if err := errors.Join(write(filepath.Join(k.o.OutputDir, KeyFile), key), write(filepath.Join(k.o.OutputDir, ChainFile), chain)); err != nil || k.o.GRPC == (GRPCNode{}) {
		return err
	}
	bootstrap, err := k.o.GRPC.bootstrap(k.o.OutputDir) // last: the files that it names exist now
	if err != nil {
		return err
	}
	return write(filepath.Join(k.o.OutputDir, BootstrapFile), bootstrap)
}

// readHeld reads the stored certificate.
func readHeld(dir string) (*held, error) {
	raw, err := read(filepath.Join(dir, storedCertificate))
	if err != nil {
		return nil, err
	}
	_, chain := pem.Decode(raw) // the key is the first block
	return pair(chain, raw)
}

// readRoots reads the roots that an earlier agent of this pod trusted last.
func readRoots(dir string) []*x509.Certificate {
	raw, err := read(filepath.Join(dir, storedRoots))
	if err != nil {
		return nil
	}
	roots, err := wire.ParseCertificates(raw)
	if err != nil {
		return nil
	}
	return roots
}

// pair parses a chain and a key, and checks that they belong together.
func pair(chain, key []byte) (*held, error) {
	certs, err := wire.ParseCertificates(chain)
	if err != nil {
		return nil, err
	}
	k, err := wire.ParseKey(key)
	if err != nil {
		return nil, err
	}
	if !wire.Fits(certs[0], k) {
		return nil, errors.New("the key is another certificate's")
	}
	return &held{key: k, chain: certs}, nil
}

// fits checks that the certificate is valid, is issued to id, and will be accepted by peers that
// trust roots.
func (h *held) fits(id ID, roots []*x509.Certificate, now time.Time) error {
	leaf := h.leaf()
	if !wire.Fits(leaf, h.key) {
		return errors.New("it is for another key than that of the request")
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

// valid checks the certificate's validity period.
func (h *held) valid(now time.Time) error {
	leaf := h.leaf()
	if now.Before(leaf.NotBefore) || !now.Before(leaf.NotAfter) {
		return fmt.Errorf("it is valid from %s to %s; is a clock wrong?", leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}
