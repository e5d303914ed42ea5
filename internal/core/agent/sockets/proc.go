package sockets

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// tables names the files that list a protocol's sockets in the calling thread's network
// namespace.
var tables = map[Protocol][]string{
	TCP: {"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"},
	UDP: {"/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"},
}

// proc implements List with the tables of /proc/net.
func proc(p Protocol, states States) (out []Socket, err error) {
	missing := 0
	for _, path := range tables[p] {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			missing++ // the IP family is switched off
			continue
		}
		if err != nil {
			return nil, err
		}
		some, err := readTable(f, states)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, some...)
	}
	if missing == len(tables[p]) {
		return nil, fmt.Errorf("/proc/net: %w", fs.ErrNotExist)
	}
	return out, nil
}

// readTable reads a table, which has a title line and a line for each socket, and returns the
// sockets in one of states.
func readTable(r io.Reader, states States) (out []Socket, err error) {
	lines := bufio.NewScanner(r)
	lines.Scan()
	for n := 2; lines.Scan(); n++ {
		s, err := parseSocket(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case Of(s.State)&states != 0:
			out = append(out, s)
		case states == Of(Listening):
			return out, nil // the kernel lists listeners first (net/ipv4/tcp_ipv4.c, tcp_seq_start)
		}
	}
	return out, lines.Err()
}

// parseSocket reads "sl local remote state queues timer retransmits uid timeout inode ...".
func parseSocket(line string) (s Socket, err error) {
	f := strings.Fields(line)
	if len(f) < 10 {
		return s, fmt.Errorf("%d fields; a socket has at least 10", len(f))
	}
	number := func(text string, base, bits int) uint64 {
		n, bad := strconv.ParseUint(text, base, bits)
		err = errors.Join(err, bad)
		return n
	}
	// "0100007F:3A99" is an address as 32-bit words in the machine's byte order (little endian on
	// every platform that Outrider is built for), and a port as a number.
	address := func(text string) netip.AddrPort {
		words, port, _ := strings.Cut(text, ":")
		raw, bad := hex.DecodeString(words)
		if err = errors.Join(err, bad); len(raw)%4 != 0 {
			return netip.AddrPort{}
		}
		for word := range slices.Chunk(raw, 4) {
			slices.Reverse(word)
		}
		addr, ok := netip.AddrFromSlice(raw)
		if !ok {
			err = errors.Join(err, fmt.Errorf("address %q: want 8 or 32 hexadecimal digits and a port", text))
		}
		return netip.AddrPortFrom(addr, uint16(number(port, 16, 16)))
	}
	s.Local, s.Remote = address(f[1]), address(f[2])
	s.State, s.UID, s.Inode = State(number(f[3], 16, 5)), uint32(number(f[7], 10, 32)), uint32(number(f[9], 10, 32))
	unsent, unread, _ := strings.Cut(f[4], ":")
	s.Unsent, s.Unread = uint32(number(unsent, 16, 32)), uint32(number(unread, 16, 32))
	if !s.Local.IsValid() || !s.Remote.IsValid() {
		err = errors.Join(err, errors.New("no address"))
	}
	return s, err
}
