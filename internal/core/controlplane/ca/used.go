package ca

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// UsedTokens records which one-time tokens were used. Replicas share one record.
type UsedTokens interface {
	// Use records that a token was used for the key of a request, and reports whether that is allowed. It is
	// allowed only for the first key, whichever replica receives it. That key may use the token again for a
	// while, because the response may have been lost.
	Use(ctx context.Context, token, key [32]byte, now time.Time) (ok bool, err error)
}

// FirstUse records the first use of a token.
type FirstUse struct {
	Key [32]byte // SHA-256 of the request's public key
	At  time.Time
}

// Allows reports whether the token may be used again with a key: the first key may do so for ten minutes.
func (u FirstUse) Allows(key [32]byte, now time.Time) bool {
	return u.Key == key && now.Before(u.At.Add(retryWindow))
}

// Used records used tokens in a file. Each line has the hash of the token, the hash of the key, and the time
// of the use. Replicas may share the file.
type Used struct {
	mu   sync.Mutex
	path string
	uses map[[32]byte]FirstUse
}

// maxUsed is the maximum number of recorded tokens, which take 250 bytes of memory each. No record is ever
// removed automatically, because the token could be used again if its host was declared again.
const maxUsed = 250_000

// NewUsed reads the file at path, and creates it if there is none.
func NewUsed(path string) (*Used, error) {
	u := &Used{path: path, uses: map[[32]byte]FirstUse{}}
	return u, u.withFile(func(*os.File) error { return nil })
}

// Use implements [UsedTokens].
func (u *Used) Use(_ context.Context, token, key [32]byte, now time.Time) (ok bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	err = u.withFile(func(f *os.File) error {
		if first, used := u.uses[token]; used {
			ok = first.Allows(key, now)
			return nil
		}
		if len(u.uses) >= maxUsed {
			return fmt.Errorf("%s has %d tokens, the most that are remembered: remove the lines of hosts that will not be declared again, and start outriderd again", u.path, len(u.uses))
		}
		if _, err := fmt.Fprintf(f, "%x %x %s\n", token, key, now.UTC().Format(time.RFC3339)); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		u.uses[token], ok = FirstUse{key, now}, true
		return nil
	})
	return ok && err == nil, err
}

// withFile locks the file, reads it, and calls a function with the file, which is open for appending. It
// reads the whole file each time, because other replicas append to it and hosts join rarely. Uses that were
// read earlier stay known even if the file is removed.
func (u *Used) withFile(do func(f *os.File) error) (err error) {
	f, err := os.OpenFile(u.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("storing used host tokens: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil { // closing the file also unlocks it
			err = fmt.Errorf("storing used host tokens: %w", err)
		}
	}()
	if err := lock(f); err != nil {
		return err
	}
	raw, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	if len(whole) < len(raw) { // a crash cut off the last line before its use was allowed
		if err := f.Truncate(int64(len(whole))); err != nil {
			return err
		}
	}
	number := 0
	for line := range strings.Lines(string(whole)) {
		number++
		if err := u.line(line); err != nil {
			return fmt.Errorf("%s, line %d: %w", u.path, number, err)
		}
	}
	return do(f)
}

func (u *Used) line(text string) error {
	words := strings.Fields(text)
	if len(words) != 3 {
		return errors.New("want the token's sum, the key's sum and the time")
	}
	var token [32]byte
	var one FirstUse
	for i, into := range [][]byte{token[:], one.Key[:]} {
		raw, err := hex.DecodeString(words[i])
		if err != nil || len(raw) != len(into) {
			return errors.New("a sum is 64 hexadecimal digits")
		}
		copy(into, raw)
	}
	var err error
	if one.At, err = time.Parse(time.RFC3339, words[2]); err != nil {
		return err
	}
	if _, seen := u.uses[token]; !seen { // the first key wins
		if len(u.uses) >= maxUsed {
			return fmt.Errorf("more than %d tokens: remove the lines of hosts that will not be declared again", maxUsed)
		}
		u.uses[token] = one
	}
	return nil
}
