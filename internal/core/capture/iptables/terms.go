package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/ipset"
)

// A term is one condition in the form of iptables-save. The same table is used to write and to
// parse rules.
type term struct {
	key    capture.Key
	module string // empty for options of iptables itself
	words  string // a word in braces is a value, see slots
}

// transport stands for the module tcp or udp.
const transport = "{protocol}"

// terms lists the conditions in the order in which iptables-save writes them.
var terms = []term{
	{capture.Source, "", "-s {range}"},
	{capture.Destination, "", "-d {range}"},
	{capture.InInterface, "", "-i {interface}"},
	{capture.OutInterface, "", "-o {interface}"},
	{capture.Protocol, "", "-p {protocol}"},
	{capture.SourcePort, transport, "--sport {port}"},
	{capture.DestPort, transport, "--dport {ports}"},
	{capture.SYN, transport, "--tcp-flags FIN,SYN,RST,ACK SYN"},
	{capture.Mark, "mark", "--mark {number}"},
	{capture.ConnMark, "connmark", "--mark {number}"},
	{capture.Original, "conntrack", "--ctdir ORIGINAL"},
	{capture.Invalid, "conntrack", "--ctstate INVALID"},
	{capture.Socket, "socket", "--nowildcard"},
	{capture.UID, "owner", "--uid-owner {id}"},
	{capture.GID, "owner", "--gid-owner {id}"},
	// The module recent remembers addresses. The mask makes all addresses equal, so that a list
	// contains one key for each family.
	{capture.InSet, "set", "--match-set {list} src"},
	{capture.InSet, "set", "--match-set {list} dst"},
	{capture.InSet, "recent", "--rcheck --seconds {seconds} --name {set} --mask {any} --rdest"},
}

// once reports whether a rule can contain the condition only once, because iptables has a single option or module
// for it. Conditions of other modules may occur several times.
func (t term) once() bool { return t.module == "" || t.module == transport }

// isFor reports whether t is the form in which m is written. Two modules look up sets.
func (t term) isFor(m capture.Match) bool {
	if m.Key != t.key || m.Key != capture.InSet {
		return m.Key == t.key
	}
	switch capture.SetKey(m.Num) {
	case capture.BySource4, capture.BySource6:
		return strings.HasSuffix(t.words, " src")
	case capture.ByPort, capture.ByFamilyPort, capture.ByDestination4, capture.ByDestination6:
		return strings.HasSuffix(t.words, " dst")
	}
	return t.module == "recent"
}

// An effect is one action in the form of iptables-save.
type effect struct {
	verb  capture.Verb
	words string
}

// effects lists the actions. Actions of module recent are written as the last condition, since all others must be
// met before; the others are targets. If the text of one target begins with the text of another, the longer one
// comes first.
var effects = []effect{
	{capture.Update, "-j SET --add-set {list} dst --exist"},
	{capture.Add, "-j SET --add-set {list} dst"},
	{capture.Delete, "-j SET --del-set {list} dst"},
	{capture.Update, "-m recent --set --name {set} --mask {any} --rdest"},
	{capture.Delete, "-m recent --remove --name {set} --mask {any} --rdest"},
	{capture.Goto, "-g {chain}"},
	{capture.Return, "-j RETURN"},
	{capture.Drop, "-j DROP"},
	{capture.Reject, "-j REJECT --reject-with tcp-reset"},
	{capture.Redirect, "-j REDIRECT --to-ports {port}"},
	{capture.TProxy, "-j TPROXY --on-port {port} --on-ip {any} --tproxy-mark {mark}"},
	{capture.Zone, "-j CT --zone {zone}"},
	{capture.SetMark, "-j MARK --set-xmark {mark}"},
	{capture.SetConnMark, "-j CONNMARK --set-xmark {mark}"},
}

// values contains the values that replace the slots in the words of a condition or an action.
type values struct {
	family  capture.Families // of the table
	num     uint32
	last    uint32 // end of a range that starts with num, or 0
	mark    uint32
	prefix  netip.Prefix
	name    string
	timeout time.Duration // timeout of a set of the module recent
	list    string        // the kernel's name of a set of ipset
}

// A slot writes and parses one value.
type slot struct {
	write func(v values) (string, error)
	read  func(v *values, word string) error
}

var slots = map[string]slot{
	"{range}": {
		func(v values) (string, error) { return v.prefix.String(), v.checkRange() },
		func(v *values, word string) (err error) {
			if v.prefix, err = netip.ParsePrefix(word); err != nil {
				return err
			}
			return v.checkRange()
		},
	},
	"{interface}": {
		func(v values) (string, error) { return v.name, v.checkInterface() },
		func(v *values, word string) error { v.name = word; return nil },
	},
	"{protocol}": {
		func(v values) (string, error) { return protocolName(v.num) },
		func(v *values, word string) error {
			v.num = capture.TCP
			if word == "udp" {
				v.num = capture.UDP
			}
			if name, _ := protocolName(v.num); name != word {
				return fmt.Errorf("%q: only TCP and UDP", word)
			}
			return nil
		},
	},
	"{port}": numberSlot(10, 16, "%d"),
	"{ports}": {
		func(v values) (string, error) {
			first, err := numberSlot(10, 16, "%d").write(v)
			if err != nil || v.last == 0 {
				return first, err
			}
			last, err := numberSlot(10, 16, "%d").write(values{num: v.last})
			return first + ":" + last, err
		},
		func(v *values, word string) (err error) {
			first, last, isRange := strings.Cut(word, ":")
			if v.num, err = parseNumber(first, 10, 16); err == nil && isRange {
				v.last, err = parseNumber(last, 10, 16)
			}
			return err
		},
	},
	"{zone}":   numberSlot(10, 16, "%d"),
	"{id}":     numberSlot(10, 32, "%d"),
	"{number}": numberSlot(0, 32, "%#x"),
	"{mark}": {
		func(v values) (string, error) { return fmt.Sprintf("%#x/0xffffffff", v.mark), nil },
		func(v *values, word string) (err error) {
			v.mark, err = parseNumber(strings.TrimSuffix(word, "/0xffffffff"), 0, 32)
			return err
		},
	},
	"{any}": {
		func(v values) (string, error) { return unspecified(v.family), nil },
		func(v *values, word string) error {
			if word != unspecified(v.family) {
				return fmt.Errorf("%q is not the address %s", word, unspecified(v.family))
			}
			return nil
		},
	},
	"{chain}": {
		func(v values) (string, error) { return kernelName(v.name) },
		func(v *values, word string) (err error) { v.name, err = chainName(word); return err },
	},
	"{set}": {
		func(v values) (string, error) { return v.name, checkSetName(v.name) },
		func(v *values, word string) error { v.name = word; return checkSetName(word) },
	},
	"{list}": {
		func(v values) (string, error) { return v.list, nil },
		func(v *values, word string) error { v.list = word; return nil },
	},
	"{seconds}": {
		func(v values) (string, error) {
			if v.timeout < time.Second || v.timeout%time.Second != 0 || v.timeout > ipset.MaxTimeout {
				return "", fmt.Errorf("set %s: its timeout, %s, is not a number of seconds that fits", v.name, v.timeout)
			}
			return strconv.Itoa(int(v.timeout / time.Second)), nil
		},
		func(v *values, word string) error {
			n, err := parseNumber(word, 10, 32)
			v.timeout = time.Duration(n) * time.Second
			return err
		},
	},
}

func numberSlot(base, bits int, format string) slot {
	return slot{
		func(v values) (string, error) {
			if uint64(v.num)>>bits != 0 {
				return "", fmt.Errorf("%d does not fit in %d bits", v.num, bits)
			}
			return fmt.Sprintf(format, v.num), nil
		},
		func(v *values, word string) (err error) { v.num, err = parseNumber(word, base, bits); return err },
	}
}

func parseNumber(word string, base, bits int) (uint32, error) {
	n, err := strconv.ParseUint(word, base, bits)
	return uint32(n), err
}

func protocolName(n uint32) (string, error) {
	switch n {
	case capture.TCP:
		return "tcp", nil
	case capture.UDP:
		return "udp", nil
	}
	return "", fmt.Errorf("protocol %d: only TCP and UDP", n)
}

func (v values) checkRange() error {
	if !v.prefix.IsValid() || v.prefix.Addr().Is4() != (v.family == capture.IPv4) || v.prefix != v.prefix.Masked() {
		return fmt.Errorf("%s is not a range of %s", v.prefix, v.family)
	}
	if v.prefix.Bits() == 0 {
		return errors.New("iptables does not list a range of all addresses; leave it out")
	}
	return nil
}

func (v values) checkInterface() error {
	name := strings.TrimSuffix(v.name, "+") // + marks a prefix, as in the model
	if name == "" || len(v.name) > 15 || strings.ContainsAny(name, "\"\\+ \t\n/") || strings.ContainsAny(v.name[:1], "-!") {
		return fmt.Errorf("interface %q: iptables would read it otherwise", v.name)
	}
	return nil
}

func checkSetName(name string) error {
	if !capture.ValidName(name) {
		return fmt.Errorf("set %q: the name takes lower case letters, digits and dashes", name)
	}
	return nil
}

// unspecified returns 0.0.0.0 or ::.
func unspecified(family capture.Families) string {
	if family == capture.IPv4 {
		return netip.IPv4Unspecified().String()
	}
	return netip.IPv6Unspecified().String()
}

// fill returns words with the values in their slots.
func fill(words string, v values) (string, error) {
	out := strings.Fields(words)
	for i, word := range out {
		s, ok := slots[word]
		if !ok {
			continue
		}
		var err error
		if out[i], err = s.write(v); err != nil {
			return "", err
		}
	}
	return strings.Join(out, " "), nil
}

// match parses words and their values from the beginning of line. The result ok is false if the line does not
// begin with the words; err means that a value is malformed.
func match(words string, line []string, v *values) (rest []string, ok bool, err error) {
	want := strings.Fields(words)
	if len(line) < len(want) {
		return line, false, nil
	}
	same := func(got, want string) bool { _, isSlot := slots[want]; return isSlot || got == want }
	if !slices.EqualFunc(line[:len(want)], want, same) {
		return line, false, nil
	}
	for i, word := range want {
		if s, isSlot := slots[word]; isSlot {
			if err := s.read(v, line[i]); err != nil {
				return line, true, err
			}
		}
	}
	return line[len(want):], true, nil
}
