package capture_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/iptables"
	"outrider.dev/internal/core/capture/trace"
)

// faults lists the parts of a rule set that a kernel would refuse, or a person could not read.
func faults(rs capture.Ruleset) (out []string) {
	report := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	reached := map[string]bool{"record": true}
	for _, c := range rs.Chains {
		for _, r := range c.Rules {
			if !printable(r.Reason) || len(r.Reason) > 100 || strings.Contains(r.String(), "unknown") {
				report("chain %s: %s # %q", c.Name, r, r.Reason)
			}
			sets := r.Match
			switch a := r.Action; a.Verb {
			case capture.Goto:
				reached[a.Name] = true
				if to := rs.Chain(a.Name); to == nil || to.Table != c.Table || to.Hook != capture.NoHook {
					report("chain %s: %s: no such chain in its table", c.Name, r)
				}
			case capture.Add, capture.Update, capture.Delete:
				sets = append(slices.Clip(sets), capture.Match{Key: capture.InSet, Name: a.Name, Num: a.Num})
			}
			for _, m := range sets {
				if s := rs.Set(m.Name); m.Key == capture.InSet && (s == nil || uint32(s.Key) != m.Num) {
					report("chain %s: %s: no such set", c.Name, r)
				}
			}
		}
	}
	for i, c := range rs.Chains {
		if rs.Chain(c.Name) != &rs.Chains[i] || c.Hook == capture.NoHook && !reached[c.Name] {
			report("chain %s is there twice, or unreachable", c.Name)
		}
	}
	for _, s := range rs.Sets {
		if s.Timeout < 0 || s.Constant() != (s.Len() > 0) || !printable(s.Name) || rs.Set(s.Name).Len() != s.Len() {
			report("set %q for %s, elements %s", s.Name, s.Timeout, s.Elements())
		}
	}
	if rs.Backend == capture.IPTables {
		if _, err := iptables.Script(rs); err != nil {
			report("%v", err)
		}
	}
	if record, intact := rs.Recorded(); len(rs.Chains) > 0 && (!intact || record != rs.Record()) {
		report("record %q, intact %t", record, intact)
	}
	return out
}

func printable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// FuzzFlags gives random values to random flags, one per line. Accepted values must lead to rules
// that a kernel accepts, and to a trace that ends.
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
		"kube-virt-interfaces=-",
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
			_ = trace.Follow(rs, conn, trace.Pod{}).String()
		}
	})
}

// FuzzPorts checks that a list of ports is either refused, or means the same ports when written as
// ranges.
func FuzzPorts(f *testing.F) {
	for _, seed := range []string{"80,443", "8080:8090", ":1023,1024:", "0x1f90", "017", "80:79", "1:65535,1:65535", "0:0", ","} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		read := func(s string) ([]uint16, error) {
			in := capture.Defaults()
			err := set(&in, "istio-inbound-ports="+s)
			return in.InboundPorts.List, err
		}
		ports, err := read(s)
		if err != nil {
			return
		}
		var words []string
		var first uint16
		for i, p := range ports {
			if i == 0 || ports[i-1]+1 != p {
				first, words = p, append(words, "")
			}
			words[len(words)-1] = fmt.Sprintf("%d:%d", first, p)
		}
		if !slices.IsSorted(ports) || slices.Contains(ports, 0) {
			t.Errorf("%q is %v", s, ports)
		}
		if again, err := read(strings.Join(words, ",")); err != nil || !slices.Equal(ports, again) {
			t.Errorf("%q is %v, and that is %v, %v", s, ports, again, err)
		}
	})
}
