package readiness

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// States of a TCP socket as /proc writes them (linux include/net/tcp_states.h).
const (
	synSent = 2
	listen  = 10
)

// A Socket is a line of /proc/net/tcp or tcp6.
type Socket struct {
	Local, Remote netip.AddrPort
	State         uint8
	UID           uint32
	Inode         uint64 // zero where no process has it open
}

// Sockets reads a table of sockets. A line that has not the kernel's form is an error
// and the end.
func Sockets(r io.Reader) iter.Seq2[Socket, error] {
	return func(yield func(Socket, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Scan() // the title
		for n := 2; lines.Scan(); n++ {
			s, err := parseSocket(lines.Text())
			if err != nil {
				yield(Socket{}, fmt.Errorf("line %d: %w", n, err))
				return
			}
			if !yield(s, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Socket{}, err)
		}
	}
}

// parseSocket reads "sl local remote state queues timer retransmits uid timeout inode ...".
func parseSocket(line string) (Socket, error) {
	f := strings.Fields(line)
	if len(f) < 10 {
		return Socket{}, fmt.Errorf("%d fields; a socket has at least 10", len(f))
	}
	var s Socket
	var errs [5]error
	s.Local, errs[0] = parseAddress(f[1])
	s.Remote, errs[1] = parseAddress(f[2])
	state, err := strconv.ParseUint(f[3], 16, 8)
	s.State, errs[2] = uint8(state), err
	uid, err := strconv.ParseUint(f[7], 10, 32)
	s.UID, errs[3] = uint32(uid), err
	s.Inode, errs[4] = strconv.ParseUint(f[9], 10, 64)
	return s, errors.Join(errs[:]...)
}

// parseAddress reads "0100007F:3A99": the address as 32 bit words in the machine's order
// (little endian on every platform that we build for), the port as a number.
func parseAddress(s string) (netip.AddrPort, error) {
	addr, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(addr)
	if err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, fmt.Errorf("address %q: want 8 or 32 hexadecimal digits and a port", s)
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %q: the port is no hexadecimal number", s)
	}
	a, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a, uint16(p)), nil
}

// each calls f with each socket of both families until it returns false, for that family.
func each(proc string, f func(Socket) bool) error {
	found := false
	for _, name := range []string{"tcp", "tcp6"} {
		file, err := os.Open(filepath.Join(proc, "net", name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the family is switched off
		}
		if err != nil {
			return err
		}
		found = true
		for s, err := range Sockets(file) {
			if err != nil {
				file.Close()
				return fmt.Errorf("%s: %w", file.Name(), err)
			}
			if !f(s) {
				break
			}
		}
		file.Close()
	}
	if !found {
		return fmt.Errorf("%s/net/tcp: %w", proc, fs.ErrNotExist)
	}
	return nil
}

// Listening returns those of ports on which no socket of uid listens, besides this
// process's own: the standby listens on the same ports as the same user, and a socket is
// known by its inode. proc is /proc.
func Listening(proc string, uid uint32, ports ...uint16) (missing []uint16, err error) {
	all, err := diagListeners()
	if err != nil { // a kernel without it, a seccomp profile against it
		if all, err = procListeners(proc); err != nil {
			return nil, fmt.Errorf("reading who listens: %w", err)
		}
	}
	bound := slices.DeleteFunc(all, func(s Socket) bool { return s.UID != uid || !slices.Contains(ports, s.Local.Port()) })
	own := map[uint64]bool{}
	if len(bound) > 0 {
		if own, err = ownSockets(proc); err != nil {
			return nil, fmt.Errorf("reading which sockets are the agent's own: %w", err)
		}
	}
	for _, p := range ports {
		if !slices.ContainsFunc(bound, func(s Socket) bool { return s.Local.Port() == p && !own[s.Inode] }) {
			missing = append(missing, p)
		}
	}
	return missing, nil
}

// procListeners reads who listens from /proc/net/tcp and tcp6.
func procListeners(proc string) (out []Socket, err error) {
	err = each(proc, func(s Socket) bool {
		// The kernel writes listeners first (net/ipv4/tcp_ipv4.c, tcp_seq_start).
		if s.State != listen {
			return false
		}
		out = append(out, s)
		return true
	})
	return out, err
}

// ownSockets are the inodes of the sockets that this process has open.
func ownSockets(proc string) (map[uint64]bool, error) {
	dir := filepath.Join(proc, "self", "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[uint64]bool{}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if text, ok := strings.CutPrefix(target, "socket:["); ok {
			if inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64); err == nil {
				out[inode] = true
			}
		}
	}
	return out, nil
}

// Parked counts the connections of others than uid whose first packet was not answered
// yet: those that wait for the proxy, and those whose peer is slow.
func Parked(proc string, uid uint32) (n int, err error) {
	err = each(proc, func(s Socket) bool {
		if s.State == synSent && s.UID != uid {
			n++
		}
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("counting parked connections: %w", err)
	}
	return n, nil
}
