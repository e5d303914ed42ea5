package sockets

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

// tables are a protocol's files in /proc/net.
var tables = map[Protocol][]string{TCP: {"tcp", "tcp6"}, UDP: {"udp", "udp6"}}

// Proc is List by the tables in root/net. root is /proc.
func Proc(root string, p Protocol, states States) (out []Socket, err error) {
	found := false
	for _, name := range tables[p] {
		path := filepath.Join(root, "net", name)
		some, err := readTable(path, states)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the family is switched off
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		found, out = true, append(out, some...)
	}
	if !found {
		return nil, fmt.Errorf("%s: %w", filepath.Join(root, "net"), fs.ErrNotExist)
	}
	return out, nil
}

func readTable(path string, states States) (out []Socket, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for s, err := range parseTable(f) {
		switch {
		case err != nil:
			return nil, err
		case states.Has(s.State):
			out = append(out, s)
		case states == Of(Listening):
			return out, nil // the kernel writes them first (net/ipv4/tcp_ipv4.c, tcp_seq_start)
		}
	}
	return out, nil
}

// parseTable reads a table of sockets. A line that has not the kernel's form is an error
// and the end.
func parseTable(r io.Reader) iter.Seq2[Socket, error] {
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
	s.State, errs[2] = State(state), err
	uid, err := strconv.ParseUint(f[7], 10, 32)
	s.UID, errs[3] = uint32(uid), err
	inode, err := strconv.ParseUint(f[9], 10, 32)
	s.Inode, errs[4] = uint32(inode), err
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
