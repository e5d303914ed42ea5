package identity

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// A Host is a machine outside of Kubernetes that may join, by a token that is used once.
type Host struct {
	Namespace      string
	Name           string
	ServiceAccount string
}

// Hosts finds the host that a token is for, by the SHA-256 of the token.
type Hosts interface {
	HostByToken(sum [32]byte) (Host, bool)
}

// Once remembers which tokens were used. Use is called for a token and the key that asks
// with it: the first key wins. It may ask again with the same token for a while, since
// the answer may have been lost on the way; no other key may, ever.
type Once interface {
	Use(ctx context.Context, token, key [32]byte, now time.Time) (ok bool, err error)
}

// again is how long the first key may ask again.
const again = 10 * time.Minute

// HostTokens are the one-time tokens of hosts.
type HostTokens struct {
	TrustDomain string
	Hosts       Hosts
	Once        Once
}

// Authenticate looks for the host that a token is for.
func (h HostTokens) Authenticate(_ context.Context, c Credentials) (Caller, error) {
	if c.Bearer == "" {
		return Caller{}, ErrOther
	}
	sum := sha256.Sum256([]byte(c.Bearer))
	host, ok := h.Hosts.HostByToken(sum)
	if !ok {
		return Caller{}, ErrOther
	}
	caller, err := called(Identity{TrustDomain: h.TrustDomain, Namespace: host.Namespace, ServiceAccount: host.ServiceAccount}, "host token")
	if err != nil {
		return Caller{}, err
	}
	caller.Spend = func(ctx context.Context, key [32]byte) error {
		ok, err := h.Once.Use(ctx, sum, key, time.Now())
		if err == nil && !ok {
			return refuse("the token of host %s/%s was used already; it is good for one certificate, which then renews itself", host.Namespace, host.Name)
		}
		return err
	}
	return caller, nil
}

type use struct {
	key [32]byte
	at  time.Time
}

// Used is a [Once] that keeps its memory in a file, one line a token:
// the token's sum, the key's, and when.
type Used struct {
	mu   sync.Mutex
	path string
	uses map[[32]byte]use
}

// NewUsed reads the file at path, which need not be there. Empty path: the memory ends
// with the process.
func NewUsed(path string) (*Used, error) {
	u := &Used{path: path, uses: map[[32]byte]use{}}
	if path == "" {
		return u, nil
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return u, nil
	}
	if err != nil {
		return nil, err
	}
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	if len(whole) < len(raw) {
		// A crash cut the last line short, before anybody was told yes.
		if err := replace(path, whole); err != nil {
			return nil, err
		}
	}
	n := 0
	for line := range strings.Lines(string(whole)) {
		n++
		if err := u.line(line); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, n, err)
		}
	}
	return u, nil
}

func (u *Used) line(text string) error {
	words := strings.Fields(text)
	if len(words) != 3 {
		return errors.New("write the token's sum, the key's sum and the time")
	}
	var token [32]byte
	var one use
	for i, into := range [][]byte{token[:], one.key[:]} {
		raw, err := hex.DecodeString(words[i])
		if err != nil || len(raw) != len(into) {
			return errors.New("a sum is 64 hexadecimal digits")
		}
		copy(into, raw)
	}
	at, err := time.Parse(time.RFC3339, words[2])
	one.at = at
	if _, seen := u.uses[token]; !seen { // the first key wins
		u.uses[token] = one
	}
	return err
}

// Use writes a use down before it says yes.
func (u *Used) Use(_ context.Context, token, key [32]byte, now time.Time) (bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if first, ok := u.uses[token]; ok {
		return first.key == key && now.Before(first.at.Add(again)), nil
	}
	if u.path != "" {
		line := fmt.Sprintf("%x %x %s\n", token, key, now.UTC().Format(time.RFC3339))
		f, err := os.OpenFile(u.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return false, fmt.Errorf("remembering a host's token: %w", err)
		}
		_, err = f.WriteString(line)
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return false, fmt.Errorf("remembering a host's token: %w", err)
		}
	}
	u.uses[token] = use{key, now}
	return true, nil
}
