package identity

import (
	"context"
	"fmt"
	"time"

	"outrider.dev/internal/base/wire"
)

// take is called in place of [Keeper.step] if the certificate files are provided. It does not check the identity
// in the certificate. Files that do not match one another are probably being replaced: Envoy keeps its
// certificate until they match.
func (k *Keeper) take(context.Context) {
	now := time.Now()
	k.due = now.Add(longestWait)
	if err := k.takeNow(now); err != nil {
		k.publish(State{Phase: Failing, Fault: fault(Broken, "the certificate that is provided: %v", err)})
		return
	}
	k.publish(State{Phase: Have})
}

func (k *Keeper) takeNow(now time.Time) error {
	p := k.o.Provided
	text := map[string][]byte{}
	for _, file := range []string{p.Chain, p.Key, p.Roots} {
		raw, err := read(file)
		if err != nil {
			return err
		}
		text[file] = raw
	}
	next, err := pair(text[p.Chain], text[p.Key])
	if err != nil {
		return fmt.Errorf("%s and %s: %w", p.Chain, p.Key, err)
	}
	roots, err := wire.ParseCertificates(text[p.Roots])
	if err != nil {
		return fmt.Errorf("%s: %w", p.Roots, err)
	}
	if err := next.valid(now); err != nil {
		return fmt.Errorf("%s: %w", p.Chain, err)
	}
	if err := k.giveRoots(roots); err != nil {
		return err
	}
	if err := k.giveCertificate(next); err != nil {
		return err
	}
	next.born = now
	k.have = next
	return nil
}
