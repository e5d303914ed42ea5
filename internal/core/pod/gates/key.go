package gates

import (
	"encoding/binary"
	"time"

	"outrider.dev/startup"
)

// AppendKey appends a key to b. States that behave alike from now on have equal keys. Incarnations are left out,
// and so is the duration of waits without a timeout.
//
// The health of a container for which the function health is false is left out: the caller knows that it has no effect.
func (s State) AppendKey(b []byte, now time.Duration, health func(name string) bool) []byte {
	b = append(b, bits(s.deleted))
	for i, c := range s.c {
		if !health(s.rules.containers[i].Name) {
			c.sick, c.status.Healthy, c.record.status.Healthy = false, false, false
		}
		b = append(b, byte(c.phase), bits(c.sick, c.deaf, c.record.fresh, c.record.here, c.record.ended), statusBits(c.status), statusBits(c.record.status))
		if longest := s.longestWait(i); longest > 0 {
			b = binary.AppendVarint(b, int64(min(now-c.since, longest)))
		}
	}
	for _, o := range s.pending {
		b = append(b, bits(o))
	}
	return b
}

// longestWait returns the longest timeout of the edges to container i.
func (s State) longestWait(i int) time.Duration {
	longest := time.Duration(0)
	for _, e := range s.rules.edges {
		if e.to == i {
			longest = max(longest, e.Timeout)
		}
	}
	return longest
}

func statusBits(s startup.Status) byte {
	return bits(s.Ran, s.Running, s.Healthy, s.Completed, s.Failed)
}

func bits(bs ...bool) byte {
	n := byte(0)
	for _, b := range bs {
		n <<= 1
		if b {
			n |= 1
		}
	}
	return n
}
