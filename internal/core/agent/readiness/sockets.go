package readiness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
		if own, err = ownSockets(proc); err != nil {
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

// ownSockets returns the inodes of the sockets that this process has open.
func ownSockets(proc string) (map[uint32]bool, error) {
	dir := filepath.Join(proc, "self", "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[uint32]bool{}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if text, ok := strings.CutPrefix(target, "socket:["); ok {
			if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 32); err == nil {
				out[uint32(inode)] = true
			}
		}
	}
	return out, nil
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
