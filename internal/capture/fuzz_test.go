package capture_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/capture"
)

// faults lists what no kernel would take, or no person understand.
func faults(rs capture.Ruleset) (out []string) {
	report := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for i, c := range rs.Chains {
		if first := rs.Chain(c.Name); first != &rs.Chains[i] {
			report("there are two chains %q", c.Name)
		}
		if c.Hook == capture.NoHook && c.Name != "record" && !reached(rs, c.Name) {
			report("nothing goes to chain %q", c.Name)
		}
		for _, r := range c.Rules {
			for _, fault := range ruleFaults(rs, c, r) {
				report("chain %s: %s # %s: %s", c.Name, r, r.Reason, fault)
			}
		}
	}
	for _, s := range rs.Sets {
		if s.Timeout <= 0 || !printable(s.Name) {
			report("set %q for %s", s.Name, s.Timeout)
		}
	}
	if record, intact := rs.Recorded(); len(rs.Chains) > 0 && (!intact || record != rs.Record()) {
		report("record %q, intact %t", record, intact)
	}
	return out
}

func reached(rs capture.Ruleset, name string) bool {
	return slices.ContainsFunc(rs.Chains, func(c capture.Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r capture.Rule) bool { return r.Action.Name == name })
	})
}

func printable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

func ruleFaults(rs capture.Ruleset, c capture.Chain, r capture.Rule) (out []string) {
	if !printable(r.Reason) || len(r.Reason) > 100 {
		out = append(out, fmt.Sprintf("a reason of %d bytes", len(r.Reason)))
	}
	sets := map[string]capture.SetKey{}
	for _, m := range r.Match {
		if strings.HasPrefix(m.String(), "unknown") {
			out = append(out, m.String())
		}
		switch m.Key {
		case capture.InSet:
			sets[m.Name] = capture.SetKey(m.Num)
		case capture.SourcePort, capture.DestPort:
			ok := slices.ContainsFunc(r.Match, func(p capture.Match) bool {
				return !p.Not && (p.Key == capture.Protocol || p.Key == capture.SYN)
			})
			if !ok {
				out = append(out, "a port without protocol")
			}
		case capture.UID, capture.GID, capture.OutInterface:
			if hooks := hooksOf(rs, c.Name); len(hooks) != 1 || !hooks[capture.Output] {
				out = append(out, fmt.Sprintf("%s at %v", m.Key, hooks))
			}
		case capture.Source, capture.Destination:
			if r.Family == 0 || r.Family.Has(capture.IPv4) != m.Prefix.Addr().Is4() || m.Prefix != m.Prefix.Masked() {
				out = append(out, fmt.Sprintf("%s in a rule for %s", m.Prefix, r.Family))
			}
		}
	}
	switch a := r.Action; a.Verb {
	case capture.Goto:
		if to := rs.Chain(a.Name); to == nil || to.Table != c.Table || to.Hook != capture.NoHook {
			out = append(out, fmt.Sprintf("no chain %q of table %s", a.Name, c.Table))
		}
	case capture.Add, capture.Update, capture.Delete:
		sets[a.Name] = capture.SetKey(a.Num)
	case capture.Redirect:
		if c.Table != capture.NAT || a.Num == 0 || !proves(r, capture.TCP) && !proves(r, capture.UDP) {
			out = append(out, "a redirect without port, protocol or NAT")
		}
	case capture.TProxy:
		if hooks := hooksOf(rs, c.Name); c.Table != capture.Mangle || !hooks[capture.Prerouting] || len(hooks) != 1 || !proves(r, capture.TCP) {
			out = append(out, "TPROXY is for TCP in mangle at prerouting")
		}
	case capture.Reject:
		if c.Table != capture.Filter || !proves(r, capture.TCP) {
			out = append(out, "a reset is for TCP in filter")
		}
	case capture.Zone:
		if c.Table != capture.Raw {
			out = append(out, "a zone is for raw")
		}
	}
	for name, key := range sets {
		if s := rs.Set(name); s == nil || s.Key != key {
			out = append(out, fmt.Sprintf("no set %q by %s", name, key))
		}
	}
	return out
}

// proves reports whether a rule is for one protocol alone.
func proves(r capture.Rule, proto uint32) bool {
	return slices.ContainsFunc(r.Match, func(m capture.Match) bool {
		return m.Key == capture.Protocol && m.Num == proto && !m.Not || m.Key == capture.SYN && proto == capture.TCP
	})
}

// hooksOf are the hooks from which a chain can be reached.
func hooksOf(rs capture.Ruleset, name string) map[capture.Hook]bool {
	hooks := map[capture.Hook]bool{}
	seen := map[string]bool{}
	var climb func(string)
	climb = func(name string) {
		c := rs.Chain(name)
		if c == nil || seen[name] {
			return
		}
		seen[name] = true
		if c.Hook != capture.NoHook {
			hooks[c.Hook] = true
		}
		for _, from := range rs.Chains {
			if slices.ContainsFunc(from.Rules, func(r capture.Rule) bool { return r.Action.Verb == capture.Goto && r.Action.Name == name }) {
				climb(from.Name)
			}
		}
	}
	climb(name)
	return hooks
}

// FuzzFlags gives any values to any flags, a line each. What is accepted must make
// rules that a kernel takes, and a trace that ends.
func FuzzFlags(f *testing.F) {
	in := capture.Defaults()
	names := map[string]bool{}
	for _, fl := range capture.Flags(&in, nil, nil) {
		names[fl.Name] = true
		f.Add(fl.Name + "=" + fl.String())
		f.Add(fl.Name + "=*")
	}
	for _, seed := range []string{
		"istio-service-cidr=10.0.0.0/8,fd00::/8,127.0.0.0/8\nistio-service-exclude-cidr=0.0.0.0/0\nredirect-dns=true\ncapture-all-dns=true",
		"istio-inbound-interception-mode=TPROXY\nistio-inbound-ports=80,15020\nkube-virt-interfaces=v'0,a2345678901234\npark-ports=*",
		"istio-inbound-interception-mode=TPROXY\nistio-inbound-ports=*\nfamilies=ipv6\npark=off\ndrop-invalid=1\nistio-exclude-interfaces=lo,x",
		"proxy-uid=0,4294967294\nproxy-gid=4294967294,istio-proxy\nistio-service-cidr=*\noutbound-owner-groups=1,2,3\nredirect-dns=true",
		"park-only=true\nenvoy-port=15053\npark-ports=15053,1\nfamilies=ipv4\npark-limit=1h",
		"envoy-port=15006\ninbound-capture-port=15006\ninbound-tunnel-port=15006\nistio-inbound-ports=*\nistio-service-cidr=*\npark-ports=15006",
	} {
		f.Add(seed)
	}
	conn := sent(capture.TCP, 1000, 1000, "eth0", "10.9.0.2:40000", "10.96.0.10:80")
	f.Fuzz(func(t *testing.T, args string) {
		in := capture.Defaults()
		in.Nameservers = testServers
		for line := range strings.SplitSeq(args, "\n") {
			if name, _, _ := strings.Cut(line, "="); !names[name] {
				continue
			}
			if err := set(&in, line); err != nil {
				if !strings.HasPrefix(err.Error(), "--") {
					t.Errorf("error %q does not name the flag", err)
				}
				return
			}
		}
		if in.Check() != nil {
			return
		}
		if in.Families == 0 {
			in.Families = capture.DualStack
		}
		for _, backend := range backends {
			rs, notes := capture.Build(in, backend)
			for _, fault := range faults(rs) {
				t.Errorf("%s: %s", backend, fault)
			}
			for _, note := range notes {
				if !printable(note) {
					t.Errorf("note %q", note)
				}
			}
			if diff := capture.Diff(rs, rs); len(diff) != 0 {
				t.Errorf("Diff of the same = %q", diff)
			}
			_ = rs.Explain()
			_ = rs.Trace(conn, capture.Pod{}).String()
		}
	})
}
