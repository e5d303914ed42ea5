package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A testCase is one row of the table of commands.
type testCase struct {
	name     string
	baseline string     // name of the case that it is compared with, or none
	before   [][]string // run in the same namespace first, without a clock
	commands [][]string // one after the other; their times are added up
	after    [][]string // must succeed then: a baseline that writes nothing would be fast
}

// The names that other cases are compared with.
const (
	empty         = "true (an empty process)"
	nftParking    = "nft -f, with parking"
	nftPlain      = "nft -f, without parking"
	nftTProxy     = "nft -f, TPROXY, with parking"
	captureAll    = "capture, everything on"
	restoreNFT    = "iptables-nft-restore, both families"
	restoreLegacy = "iptables-legacy-restore, both families"
)

// intent is what all cases capture, except for the mode.
var intent = []string{"-p", "15001", "-z", "15006", "-u", "1337", "-i", "*", "-x", "", "-b", "*", "-d", "15090,15020"}

var redirect, tproxy = append(slices.Clip(intent), "-m", "REDIRECT"), append(slices.Clip(intent), "-m", "TPROXY")

// cases is what is measured. The notes say what this machine lacks the programs for.
// Rule sets for the baselines are written into dir.
func cases(ctx context.Context, agent, dir string) (out []testCase, notes []string, err error) {
	p := scripts{ctx: ctx, agent: agent, dir: dir}
	capture := func(args ...string) []string { return append([]string{agent, "capture"}, args...) }
	with := func(flags []string, more ...string) [][]string {
		return [][]string{capture(slices.Concat(flags, more)...)}
	}
	already := with(redirect)
	table := [][]string{{"nft", "list", "table", "inet", "outrider"}}
	chains := func(variant string) (out [][]string) {
		for _, program := range []string{"iptables-", "ip6tables-"} {
			out = append(out, []string{program + variant, "--wait=10", "-t", "nat", "-S", "OUTRIDER_OUTPUT"})
		}
		return out
	}

	all := []testCase{
		{name: empty, commands: [][]string{{"true"}}},
		{name: "outrider-agent version", baseline: empty, commands: [][]string{{agent, "version"}}},
		{name: nftParking, baseline: empty, commands: p.nft(redirect), after: table},
		{name: "capture, proof off", baseline: nftParking, commands: with(redirect, "--proof=false")},
		{name: captureAll, baseline: nftParking, commands: with(redirect)},
		{name: nftPlain, baseline: empty, commands: p.nft(redirect, "--park=off"), after: table},
		{name: "capture, parking and proof off", baseline: nftPlain, commands: with(redirect, "--park=off", "--proof=false")},
		{name: nftTProxy, baseline: empty, commands: p.nft(tproxy), after: table},
		{name: "capture TPROXY, everything on", baseline: nftTProxy, commands: with(tproxy)},
		{name: restoreNFT, baseline: empty, commands: p.restore("nft", redirect), after: chains("nft")},
		{name: "capture by iptables-nft, everything on", baseline: restoreNFT, commands: with(redirect, "--force-iptables-binary=nft")},
		{name: restoreLegacy, baseline: empty, commands: p.restore("legacy", redirect), after: chains("legacy")},
		{name: "capture by iptables-legacy, everything on", baseline: restoreLegacy, commands: with(redirect, "--force-iptables-binary=legacy")},
		{name: "capture again, in place already", baseline: captureAll, before: already, commands: with(redirect)},
		{name: "capture verify", baseline: captureAll, before: already, commands: [][]string{capture("verify")}},
		{name: "capture clean", baseline: captureAll, before: already, commands: [][]string{capture("clean")}},
	}
	if p.err != nil {
		return nil, nil, p.err
	}
	for _, c := range all {
		if program := missing(c.commands); program != "" {
			notes = append(notes, fmt.Sprintf("left out: %q, as there is no %s here", c.name, program))
			continue
		}
		out = append(out, c)
	}
	return out, notes, nil
}

// missing returns the first program of commands that is not installed, or "".
func missing(commands [][]string) string {
	for _, argv := range commands {
		if _, err := exec.LookPath(argv[0]); err != nil {
			return argv[0]
		}
	}
	return ""
}

// scripts writes the agent's own rule sets as input for the baselines. The first error
// stays.
type scripts struct {
	ctx        context.Context
	agent, dir string
	files      int
	err        error
}

// nft returns the command that writes what capture with these flags writes.
func (p *scripts) nft(flags []string, more ...string) [][]string {
	return [][]string{{"nft", "-f", p.file(p.rules(slices.Concat(flags, more)))}}
}

// restore is nft for one of the two iptables, a command for each family.
func (p *scripts) restore(variant string, flags []string) (out [][]string) {
	for _, of := range []struct{ family, program string }{{"ipv4", "iptables"}, {"ipv6", "ip6tables"}} {
		rules := p.rules(slices.Concat(flags, []string{"--backend=iptables", "--force-iptables-binary=" + variant, "--families=" + of.family}))
		out = append(out, []string{of.program + "-" + variant + "-restore", "--noflush", "--wait=10", p.file(rules)})
	}
	return out
}

func (p *scripts) rules(flags []string) string {
	if p.err != nil {
		return ""
	}
	cmd := exec.CommandContext(p.ctx, p.agent, append([]string{"capture", "--dry-run"}, flags...)...)
	cmd.Env = environment
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		p.err = fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return string(text)
}

func (p *scripts) file(text string) string {
	if p.err != nil {
		return ""
	}
	p.files++
	path := filepath.Join(p.dir, fmt.Sprintf("%d.rules", p.files))
	p.err = os.WriteFile(path, []byte(text), 0o600)
	return path
}
