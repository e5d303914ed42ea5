package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"outrider.dev/internal/base/atomicfile"
	"outrider.dev/internal/base/wire"
)

// replace writes a file that only its owner can read, and syncs it: if a crash lost a key, the whole mesh
// would lose its trust.
func replace(path string, content []byte) error {
	if err := atomicfile.WriteSynced(path, content, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// withLock calls a function while it has the lock of a directory, for which other processes wait.
func withLock(dir string, do func() error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // closing the directory also unlocks it
	if err := lock(d); err != nil {
		return err
	}
	return do()
}

// syncDir makes changes to a directory's entries durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// newKey generates a key, and encodes it for a file.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	raw, err := wire.MarshalKey(key)
	return key, raw, err
}

// loadOrMakeKey returns the key in a file, and creates it if there is none.
func loadOrMakeKey(path string) (crypto.Signer, error) {
	raw, err := os.ReadFile(path)
	if err == nil {
		key, err := wire.ParseKey(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return key, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	key, raw, err := newKey()
	if err != nil {
		return nil, err
	}
	return key, replace(path, raw)
}
