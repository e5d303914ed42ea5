package readiness

import (
	"fmt"
	"path/filepath"
	"slices"

	"outrider.dev/internal/core/agent/sockets"
)

// Listening returns the ports on which no socket of the user uid listens. It ignores the sockets of
// this process, because the standby listens on the same ports as the same user. It recognises the
// sockets of this process by their inodes, which it reads from /proc; proc is the path of /proc.
func Listening(proc string, uid uint32, ports ...uint16) (missing []uint16, err error) {
	all, err := sockets.List(sockets.TCP, sockets.Of(sockets.Listening))
	if err != nil {
		return nil, fmt.Errorf("reading the listening sockets: %w", err)
	}
	bound := slices.DeleteFunc(all, func(s sockets.Socket) bool { return s.UID != uid || !slices.Contains(ports, s.Local.Port()) })
	own := map[uint32]bool{}
	if len(bound) > 0 {
		if own, err = sockets.Inodes(filepath.Join(proc, "self")); err != nil {
			return nil, fmt.Errorf("reading which sockets are the agent's own: %w", err)
		}
	}
	for _, p := range ports {
		if !slices.ContainsFunc(bound, func(s sockets.Socket) bool { return s.Local.Port() == p && !own[s.Inode] }) {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// Parked counts the connections of users other than uid whose first packet (SYN) was not answered
// yet: they wait for the proxy, or their peer is slow.
func Parked(uid uint32) (n int, err error) {
	all, err := sockets.List(sockets.TCP, sockets.Of(sockets.SynSent))
	if err != nil {
		return 0, fmt.Errorf("counting parked connections: %w", err)
	}
	for _, s := range all {
		if s.UID != uid {
			n++
		}
	}
	return n, nil
}
