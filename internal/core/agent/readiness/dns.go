package readiness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"
)

// DNS returns a [Check] that queries the DNS proxy at address for a name that the proxy can resolve without
// other servers. Any answer except SERVFAIL is a success.
func DNS(address string) Check {
	return func(ctx context.Context) (string, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "udp", address)
		if err != nil {
			return "", fmt.Errorf("querying %s: %w", address, err)
		}
		defer conn.Close()
		deadline, ok := ctx.Deadline()
		if !ok {
			deadline = time.Now().Add(2 * time.Second)
		}
		conn.SetDeadline(deadline)
		query := dnsQuery()
		if _, err := conn.Write(query); err != nil {
			return "", fmt.Errorf("querying %s: %w", address, err)
		}
		answer := make([]byte, 1500)
		for {
			n, err := conn.Read(answer)
			if err != nil {
				return "", fmt.Errorf("waiting for an answer of %s: %w", address, err)
			}
			if n >= 12 && answer[0] == query[0] && answer[1] == query[1] {
				return "", dnsOutcome(answer[:n])
			}
		}
	}
}

// dnsQuery returns a query for the address of localhost (RFC 1035, section 4). By RFC 6761 every
// resolver answers it by itself.
func dnsQuery() []byte {
	q := []byte{0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 9, 'l', 'o', 'c', 'a', 'l', 'h', 'o', 's', 't', 0, 0, 1, 0, 1}
	rand.Read(q[:2])
	return q
}

func dnsOutcome(answer []byte) error {
	switch {
	case len(answer) < 12 || answer[2]&0x80 == 0:
		return errors.New("what came back is no answer")
	case answer[3]&0xf == 2:
		return errors.New("it answers SERVFAIL: its table of names has not come yet")
	}
	return nil
}
