package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/internal/base/contract"
)

// A way is a benchmark case: commands that write the rules of one backend, for lists of one length.
type way struct {
	*group
	entries  int
	name     string
	before   [][]string // run first, not measured
	commands [][]string
	connects string // the name in the table of connections; empty if its connections are not measured

	cannot          error
	times           [2]figures.Row // wall and CPU, in milliseconds
	rules, elements int
}

// A group holds the benchmark cases of one backend for one list length, and the hand-written rules that are their
// baseline.
type group struct {
	backend string
	bases   []base
}

type base struct {
	name string
	*way
}

// rules contains the templates of the hand-written rules. They are the rules of capture, without comments and
// without the rules of the proof, as short as each program allows.
//
//go:embed rules
var rules embed.FS

var templates = template.Must(template.ParseFS(rules, "rules/*"))

// A kit creates the benchmark cases, for lists of one length at a time.
type kit struct {
	dir, agent    string
	ports, ranges []string
	ipset         bool // ipset is installed and the kernel supports it
	group         *group
	ways          []*way
	files         int
	err           error
}

// waysOf returns all benchmark cases, sorted by backend.
func waysOf(dir, agent string, ipset bool, entries []int) ([]*way, error) {
	k := &kit{dir: dir, agent: agent, group: &group{backend: "no rules"}, ipset: ipset}
	k.add("an empty process", []string{"true"})
	k.add("outrider-agent version", []string{agent, "version"})
	for _, n := range entries {
		k.ports, k.ranges = nil, nil
		for i := range n { // the entries are not adjacent, so they cannot be merged into ranges
			k.ports = append(k.ports, fmt.Sprint(30000+2*i))
			k.ranges = append(k.ranges, fmt.Sprintf("1.%d.%d.1", i>>8, i&255))
		}
		nft := k.nftables("REDIRECT")
		if first := [][]string{k.capture()}; n == entries[0] || n == entries[len(entries)-1] {
			k.add("capture again", first...).before = first
			k.add("capture verify", []string{agent, "capture", "verify"}).before = first
			k.add("capture clean", []string{agent, "capture", "clean"}).before = first
		}
		k.nftables("TPROXY")
		k.iptables("nft", nft)
		k.iptables("legacy", nft)
	}
	var backends []string
	for _, w := range k.ways {
		backends = append(backends, w.backend)
	}
	slices.SortStableFunc(k.ways, func(a, b *way) int {
		return slices.Index(backends, a.backend) - slices.Index(backends, b.backend)
	})
	return k.ways, k.err
}

func (k *kit) add(name string, commands ...[]string) *way {
	w := &way{group: k.group, entries: len(k.ports), name: name, commands: commands}
	k.ways = append(k.ways, w)
	return w
}

// capture returns a command line of "outrider-agent capture" with the lists.
func (k *kit) capture(flags ...string) []string {
	return append([]string{k.agent, "capture", "-i", "*", "-b", "*", "-o", strings.Join(k.ports, ","), "-x", strings.Join(k.ranges, ",")}, flags...)
}

// captures adds two cases: "outrider-agent capture" without and with its proof.
func (k *kit) captures(flags ...string) {
	k.add("capture --proof=false", k.capture(append(flags, "--proof=false")...))
	k.add("capture", k.capture(flags...)).connects = "capture"
}

// file writes a new file and returns its path. It records err, and the error of writing, in k.err.
func (k *kit) file(text []byte, err error) string {
	k.files++
	path := filepath.Join(k.dir, fmt.Sprint(k.files))
	k.err = errors.Join(k.err, err, os.WriteFile(path, text, 0o600))
	return path
}

func (k *kit) lines(lines ...string) string {
	return k.file([]byte(strings.Join(lines, "\n")+"\n"), nil)
}

// byHand executes a template of hand-written rules and returns the path of the resulting file.
func (k *kit) byHand(name string, data any) string {
	var out bytes.Buffer
	err := templates.ExecuteTemplate(&out, name, data)
	return k.file(out.Bytes(), err)
}

var (
	proxyPorts = []int{contract.OutboundPort, contract.InboundPort}
	// The proxy calls the app over IPv6 from this address.
	addSixSource = []string{"ip", "addr", "add", "::6/128", "dev", "lo"}
)

// nftables adds the cases with nftables for a mode, REDIRECT or TPROXY. It returns the first case, which has
// the shortest rules.
func (k *kit) nftables(mode string) *way {
	k.group = &group{backend: "nftables, " + mode}
	nft := func(replace bool, counter string) []string {
		return []string{"nft", "-f", k.byHand(strings.ToLower(mode)+".nft", struct {
			Replace                bool
			Counter, Ports, Ranges string
			Proxy                  []int
		}{replace, counter, strings.Join(k.ports, ", "), strings.Join(k.ranges, ", "), proxyPorts})}
	}
	alone := k.add("nft -f, rules alone", nft(false, ""))
	same := k.add("nft -f, same result", nft(true, "counter"), addSixSource)
	same.connects = "by hand"
	if mode == "TPROXY" {
		policy := "rule add fwmark 1337 lookup 133"
		same.commands = append(same.commands,
			[]string{"ip", "-4", "-batch", k.lines(policy, "route add local 0.0.0.0/0 dev lo table 133")},
			[]string{"ip", "-6", "-batch", k.lines(policy, "route add local ::/0 dev lo table 133")})
	}
	k.group.bases = []base{{"alone", alone}, {"same", same}}
	dry := k.capture("-m", mode, "--dual-stack", "--dry-run")
	text, err := exec.Command(dry[0], dry[1:]...).Output()
	if err != nil {
		err = fmt.Errorf("%s capture --dry-run: %w", k.agent, err)
	}
	k.add("nft -f, dry run", []string{"nft", "-f", k.file(text, err)})
	k.captures("-m", mode)
	return alone
}

// iptables adds the cases with iptables for a variant, nft or legacy. Lists become sets if ipset is available.
// Otherwise there is a rule for every 15 ports (multiport) and for every range.
func (k *kit) iptables(variant string, nft *way) {
	k.group = &group{backend: "iptables-" + variant}
	same := k.add("restore, same result")
	same.connects = "by hand"
	var ports, ranges []string // the match expression of each rule
	if len(k.ports) > 0 && k.ipset {
		same.name = "ipset, " + same.name
		ports, ranges = []string{"-m set --match-set ports dst"}, []string{"-m set --match-set ranges dst"}
		lines := []string{"create ports bitmap:port range 0-65535", fmt.Sprintf("create ranges hash:net hashsize %d maxelem %[1]d", max(1024, len(k.ranges)))}
		for i := range k.ports {
			lines = append(lines, "add ports "+k.ports[i], "add ranges "+k.ranges[i])
		}
		same.commands = append(same.commands, []string{"ipset", "restore", "-file", k.lines(lines...)})
	} else {
		for chunk := range slices.Chunk(k.ports, 15) {
			ports = append(ports, "-m multiport --dports "+strings.Join(chunk, ","))
		}
		for _, r := range k.ranges {
			ranges = append(ranges, "-d "+r)
		}
	}
	type fields struct {
		Any, Loopback, Inbound, Release string
		Ports, Ranges                   []string
		Proxy                           []int
	}
	four := k.byHand("redirect.iptables", fields{"0.0.0.0", "127.0.0.1", "127.0.0.6", "127.0.0.6", ports, ranges, proxyPorts})
	six := k.byHand("redirect.iptables", fields{"::", "::1", "::6", "::1", ports, nil, proxyPorts})
	same.commands = append(same.commands, []string{"iptables-" + variant + "-restore", "--wait=10", four},
		[]string{"ip6tables-" + variant + "-restore", "--wait=10", six}, addSixSource)
	k.group.bases = []base{{"nft", nft}, {"same", same}}
	k.captures("--force-iptables-binary=" + variant)
}
