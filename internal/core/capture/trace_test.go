package capture_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"outrider.dev/internal/core/capture"
	"outrider.dev/test/scenario"
)

var backends = []string{capture.NFTables, capture.IPTables}

// build is the rule set of a scenario.
func build(t *testing.T, s scenario.Scenario, backend string) capture.Ruleset {
	t.Helper()
	in, err := s.Intent()
	if err != nil {
		t.Fatal(err)
	}
	rs, _ := capture.Build(in, backend)
	return rs
}

func TestScenarios(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range scenario.All {
		if seen[s.Name] {
			t.Errorf("two scenarios are called %q", s.Name)
		}
		seen[s.Name] = true
		t.Run(s.Name, func(t *testing.T) {
			for _, backend := range backends {
				trace := build(t, s, backend).Trace(s.Conn, s.Pod)
				got := scenario.Want{Fate: trace.Fate, Port: trace.Port}
				if diff := cmp.Diff(s.For(backend), got); diff != "" {
					t.Errorf("%s, flags %q: (-want +got):\n%s%s", backend, s.Flags, diff, trace)
				}
			}
		})
	}
}

// traces are packets with effects besides their end: marks, zones and remembered absences.
var traces = map[string]struct {
	flags string
	conn  capture.Conn
	pod   capture.Pod
	want  capture.Trace // without Conn and Steps
}{
	"the first attempt starts the time of an absence": {
		flags: "-i *",
		conn:  sent(capture.TCP, 1000, 1000, "eth0", "10.9.0.2:40000", "10.96.0.10:80"),
		want:  capture.Trace{Fate: capture.Parked, Port: 15001, Remembered: []string{"gone-15001", "parking-15001"}},
	},
	"an attempt after the limit keeps the memory": {
		flags: "-i *",
		conn:  sent(capture.TCP, 1000, 1000, "eth0", "10.9.0.2:40000", "10.96.0.10:80"),
		pod:   capture.Pod{Remembered: []string{"gone-15001"}},
		want:  capture.Trace{Fate: capture.Refused, Port: 15001, Remembered: []string{"gone-15001"}},
	},
	"a listener that is back clears the memory": {
		flags: "-i *",
		conn:  sent(capture.TCP, 1000, 1000, "eth0", "10.9.0.2:40000", "10.96.0.10:80"),
		pod:   capture.Pod{Listeners: []capture.Listener{{Proto: capture.TCP, Port: 15001}}, Remembered: []string{"gone-15001", "parking-15001", "gone-15006"}},
		want:  capture.Trace{Fate: capture.Redirected, Port: 15001, Remembered: []string{"gone-15006"}},
	},
	"the proxy's user ends the parking": {
		conn: sent(capture.UDP, 1337, 1, "lo", "127.0.0.1:15002", "127.0.0.6:15001"),
		pod:  capture.Pod{Remembered: []string{"gone-15001", "gone-15006", "parking-15001", "parking-15006"}},
		want: capture.Trace{Fate: capture.Dropped, Port: 15001, Remembered: []string{"gone-15001", "gone-15006", "parking-15006"}},
	},
	"a release to another address has no effect": {
		conn: sent(capture.UDP, 1337, 1, "lo", "127.0.0.1:15002", "127.0.0.1:15001"),
		want: capture.Trace{Fate: capture.Refused, Port: 15001},
	},
	"a stray packet is not parked": {
		conn: stray(sent(capture.TCP, 1000, 1000, "lo", "127.0.0.1:40000", "127.0.0.1:15001")),
		want: capture.Trace{Fate: capture.Refused, Port: 15001},
	},
	"with '*' a stray packet is not parked": {
		flags: "--park-ports *",
		conn:  stray(sent(capture.TCP, 1000, 1000, "lo", "127.0.0.1:40000", "127.0.0.1:8083")),
		want:  capture.Trace{Fate: capture.Refused, Port: 8083},
	},
	"'*' parks without capture": {
		flags: "-m NONE --park-ports *",
		conn:  sent(capture.TCP, 1000, 1000, "lo", "127.0.0.1:40000", "127.0.0.1:8083"),
		want:  capture.Trace{Fate: capture.Parked, Port: 8083, Remembered: []string{"gone-8083", "parking-8083"}},
	},
	"the proxy's group ends the parking before a connection has waited": {
		conn: sent(capture.UDP, 1, 1337, "lo", "[::1]:15002", "[::1]:15006"),
		want: capture.Trace{Fate: capture.Dropped, Port: 15006, Remembered: []string{"gone-15006"}},
	},
	"root ends the parking": {
		conn: sent(capture.UDP, 0, 0, "lo", "127.0.0.1:15002", "127.0.0.6:15001"),
		want: capture.Trace{Fate: capture.Dropped, Port: 15001, Remembered: []string{"gone-15001"}},
	},
	"the app cannot end the parking": {
		conn: sent(capture.UDP, 1000, 1000, "lo", "127.0.0.1:15002", "127.0.0.6:15001"),
		want: capture.Trace{Fate: capture.Refused, Port: 15001},
	},
	"with --park-only the app ends the parking": {
		flags: "--park-only",
		conn:  sent(capture.UDP, 1000, 1000, "lo", "127.0.0.1:15002", "127.0.0.6:4140"),
		pod:   capture.Pod{Remembered: []string{"parking-4140"}},
		want:  capture.Trace{Fate: capture.Dropped, Port: 4140, Remembered: []string{"gone-4140"}},
	},
	"one of several users may end the parking": {
		flags: "-u 1337,2000",
		conn:  sent(capture.UDP, 2000, 1, "lo", "127.0.0.1:15002", "127.0.0.6:15001"),
		want:  capture.Trace{Fate: capture.Dropped, Port: 15001, Remembered: []string{"gone-15001"}},
	},
	"one of several groups may end the parking": {
		flags: "-g 1337,2000",
		conn:  sent(capture.UDP, 1, 2000, "lo", "127.0.0.1:15002", "127.0.0.6:15001"),
		want:  capture.Trace{Fate: capture.Dropped, Port: 15001, Remembered: []string{"gone-15001"}},
	},
	"one of several users is the proxy's": {
		flags: "-i * -u 1337,2000",
		conn:  sent(capture.TCP, 2000, 1, "eth0", "10.9.0.2:40000", "10.96.0.10:80"),
		want:  capture.Trace{Fate: capture.Passes, Port: 80},
	},
	"a user between several is not the proxy's": {
		flags: "-i * -u 1337,2000",
		conn:  sent(capture.TCP, 1500, 1500, "eth0", "10.9.0.2:40000", "10.96.0.10:80"),
		want:  capture.Trace{Fate: capture.Parked, Port: 15001, Remembered: []string{"gone-15001", "parking-15001"}},
	},
	"a port that is not parked cannot be released": {
		conn: sent(capture.UDP, 0, 0, "lo", "127.0.0.1:15002", "127.0.0.6:9999"),
		pod:  capture.Pod{Remembered: []string{"parking-9999"}},
		want: capture.Trace{Fate: capture.Refused, Port: 9999, Remembered: []string{"parking-9999"}},
	},
	"a packet from another port is not a release": {
		conn: sent(capture.UDP, 0, 0, "lo", "127.0.0.1:40000", "127.0.0.6:15001"),
		want: capture.Trace{Fate: capture.Refused, Port: 15001},
	},
	"with '*' any port can be released": {
		flags: "--park-ports *",
		conn:  sent(capture.UDP, 0, 0, "lo", "127.0.0.1:15002", "127.0.0.6:8083"),
		pod:   capture.Pod{Remembered: []string{"parking-8083", "parking-8084"}},
		want:  capture.Trace{Fate: capture.Dropped, Port: 8083, Remembered: []string{"gone-8083", "parking-8084"}},
	},
	"with '*' a status port has no release": {
		flags: "--park-ports *",
		conn:  sent(capture.UDP, 0, 0, "lo", "127.0.0.1:15002", "127.0.0.6:15020"),
		want:  capture.Trace{Fate: capture.Refused, Port: 15020},
	},
	"a release by TCP has no effect": {
		conn: sent(capture.TCP, 0, 0, "lo", "127.0.0.1:15002", "127.0.0.6:15001"),
		pod:  capture.Pod{Listeners: []capture.Listener{{Proto: capture.TCP, Port: 15001}}},
		want: capture.Trace{Fate: capture.Passes, Port: 15001},
	},
	"the agent queries a name server in the first zone": {
		flags: "--redirect-dns --capture-all-dns",
		conn:  sent(capture.UDP, 1337, 1, "eth0", "10.9.0.2:40000", "10.96.0.10:53"),
		want:  capture.Trace{Fate: capture.Passes, Port: 53, Zone: 1},
	},
	"the agent's group queries a name server in the first zone": {
		flags: "--redirect-dns --capture-all-dns",
		conn:  sent(capture.UDP, 1, 1337, "eth0", "10.9.0.2:40000", "10.96.0.10:53"),
		want:  capture.Trace{Fate: capture.Passes, Port: 53, Zone: 1},
	},
	"a name server answers in the first zone": {
		flags: "--redirect-dns --capture-all-dns",
		conn:  capture.Conn{Proto: capture.UDP, Src: at("10.96.0.10:53"), Dst: at("10.9.0.2:40000"), In: "eth0", Reply: true},
		want:  capture.Trace{Fate: capture.Passes, Port: 40000, Zone: 1},
	},
	"the app queries the agent in the second zone": {
		flags: "--redirect-dns --capture-all-dns",
		conn:  sent(capture.UDP, 1000, 1000, "eth0", "10.9.0.2:40000", "10.96.0.10:53"),
		pod:   capture.Pod{Listeners: []capture.Listener{{Proto: capture.UDP, Port: 15053}}},
		want:  capture.Trace{Fate: capture.Redirected, Port: 15053, Zone: 2},
	},
	"the agent answers the app in the second zone": {
		flags: "--redirect-dns --capture-all-dns",
		conn:  answer(sent(capture.UDP, 1337, 1, "lo", "127.0.0.1:15053", "10.9.0.2:40000")),
		want:  capture.Trace{Fate: capture.Passes, Port: 40000, Zone: 2},
	},
	"the agent's group answers the app in the second zone": {
		flags: "--redirect-dns --capture-all-dns",
		conn:  answer(sent(capture.UDP, 1, 1337, "lo", "[::1]:15053", "[fd09::2]:40000")),
		want:  capture.Trace{Fate: capture.Passes, Port: 40000, Zone: 2},
	},
	"a connection that is taken transparently is marked": {
		flags: "-m TPROXY -b *",
		conn:  capture.Conn{Proto: capture.TCP, Src: at("10.9.0.1:40000"), Dst: at("10.9.0.2:8080"), In: "eth0"},
		pod:   capture.Pod{Listeners: []capture.Listener{{Proto: capture.TCP, Port: 15006, Transparent: true}}},
		want:  capture.Trace{Fate: capture.Taken, Port: 15006, Mark: 1337, ConnMark: 1339},
	},
	"a connection that is taken transparently clears the memory": {
		flags: "-m TPROXY -b *",
		conn:  capture.Conn{Proto: capture.TCP, Src: at("10.9.0.1:40000"), Dst: at("10.9.0.2:8080"), In: "eth0"},
		pod: capture.Pod{
			Listeners:  []capture.Listener{{Proto: capture.TCP, Port: 15006, Transparent: true}},
			Remembered: []string{"gone-15001", "gone-15006", "parking-15006"},
		},
		want: capture.Trace{Fate: capture.Taken, Port: 15006, Mark: 1337, ConnMark: 1339, Remembered: []string{"gone-15001"}},
	},
	"a later packet of a connection that was taken keeps the memory": {
		flags: "-m TPROXY -b *",
		conn:  capture.Conn{Proto: capture.TCP, Src: at("10.9.0.1:40000"), Dst: at("10.9.0.2:8080"), In: "eth0", Established: true, ConnMark: 1339},
		pod:   capture.Pod{Remembered: []string{"gone-15006", "parking-15006"}},
		want:  capture.Trace{Fate: capture.Taken, Port: 15006, Mark: 1337, ConnMark: 1339, Remembered: []string{"gone-15006", "parking-15006"}},
	},
	"with TPROXY a connection to an excluded port keeps the memory": {
		flags: "-m TPROXY -b * -d 8080",
		conn:  capture.Conn{Proto: capture.TCP, Src: at("10.9.0.1:40000"), Dst: at("10.9.0.2:8080"), In: "eth0"},
		pod:   capture.Pod{Listeners: []capture.Listener{{Proto: capture.TCP, Port: 8080}}, Remembered: []string{"gone-15006", "parking-15006"}},
		want:  capture.Trace{Fate: capture.Passes, Port: 8080, Remembered: []string{"gone-15006", "parking-15006"}},
	},
	"the proxy's call to the app under the caller's address is marked": {
		flags: "-m TPROXY -b *",
		conn:  capture.Conn{Proto: capture.TCP, Src: at("10.9.0.1:40000"), Dst: at("10.9.0.2:8080"), Out: "lo", UID: 1337, GID: 1337, Mark: 1337},
		pod:   capture.Pod{Listeners: []capture.Listener{{Proto: capture.TCP, Port: 8080}}},
		want:  capture.Trace{Fate: capture.Passes, Port: 8080, Mark: 1337, ConnMark: 1337},
	},
	"the app's answer to the proxy stays in the pod by its mark": {
		flags: "-m TPROXY -b *",
		conn:  capture.Conn{Proto: capture.TCP, Src: at("10.9.0.2:8080"), Dst: at("10.9.0.1:40000"), Out: "eth0", UID: 1000, GID: 1000, ConnMark: 1337, Established: true, Reply: true},
		want:  capture.Trace{Fate: capture.Passes, Port: 40000, Mark: 1337, ConnMark: 1337},
	},
}

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func sent(proto, uid, gid uint32, out, src, dst string) capture.Conn {
	return capture.Conn{Proto: proto, Src: at(src), Dst: at(dst), Out: out, UID: uid, GID: gid}
}

// stray is a packet of no connection.
func stray(c capture.Conn) capture.Conn {
	c.Invalid = true
	return c
}

func answer(c capture.Conn) capture.Conn {
	c.Established, c.Reply = true, true
	return c
}

func TestTraceLeavesBehind(t *testing.T) {
	for name, tt := range traces {
		t.Run(name, func(t *testing.T) {
			rs := build(t, scenario.Scenario{Flags: strings.Fields(tt.flags)}, capture.NFTables)
			got := rs.Trace(tt.conn, tt.pod)
			whole := got
			got.Conn, got.Steps = capture.Conn{}, nil
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Trace (-want +got):\n%s%s", diff, whole)
			}
		})
	}
}

// A trace must not change its arguments.
func TestTraceLeavesItsArgumentsAlone(t *testing.T) {
	rs := build(t, scenario.Scenario{Flags: []string{"-i", "*"}}, capture.NFTables)
	pod := capture.Pod{Remembered: []string{"parking-15001", "gone-15001", "a"}[:2]}
	before := rs.String()
	rs.Trace(sent(capture.TCP, 1000, 1000, "eth0", "10.9.0.2:40000", "10.96.0.10:80"), pod)
	if diff := cmp.Diff([]string{"parking-15001", "gone-15001", "a"}, pod.Remembered[:3]); diff != "" {
		t.Errorf("the pod (-before +after):\n%s", diff)
	}
	if rs.String() != before {
		t.Error("the rules are not what they were")
	}
}

// Rules that go in a circle are for the kernel to refuse; a trace of them ends.
func TestTraceOfACircleEnds(t *testing.T) {
	again := []capture.Rule{{Action: capture.Action{Verb: capture.Goto, Name: "a"}}}
	rs := capture.Ruleset{Families: capture.DualStack, Chains: []capture.Chain{
		{Name: "a", Table: capture.NAT, Hook: capture.Output, Rules: again},
	}}
	if got := rs.Trace(sent(capture.TCP, 0, 0, "eth0", "10.9.0.2:1", "10.9.0.1:2"), capture.Pod{}); got.Fate != capture.Passes {
		t.Errorf("Trace = %s", got)
	}
}

// without is rs without the rules that have this reason.
func without(rs capture.Ruleset, reason string) capture.Ruleset {
	rs.Chains = slices.Clone(rs.Chains)
	for i := range rs.Chains {
		c := &rs.Chains[i]
		c.Rules = slices.DeleteFunc(slices.Clone(c.Rules), func(r capture.Rule) bool { return r.Reason == reason })
	}
	return rs
}

// end is where a trace ends and what it leaves behind.
func end(t capture.Trace) string {
	return fmt.Sprint(t.Fate, t.Port, t.Mark, t.ConnMark, t.Zone, t.Remembered)
}

// harmless are the kinds of rules that can be lost without another end of any connection,
// each with its purpose.
var harmless = map[string]string{
	"proof: an outbound connection arrived at the proxy's port": "its counter: the next rule rejects as well",
	"proof: an inbound connection arrived at the proxy's port":  "its counter: the next rule rejects as well",
	"the absence goes on": "the age of the memory, which a trace does not have",
	"the proxy's own traffic is not captured: it would loop":     "its counter: the chain ends there",
	"refused at input: it must not reach the app past the proxy": "its counter: the chain ends there",
	"every port is excluded (-d *)":                              "its counter: no rule of -b comes after it",
}

var numbers = regexp.MustCompile(`\d+`)

// A rule that can be lost unnoticed by all scenarios is either useless or untested.
func TestScenariosNoticeTheLossOfEveryRule(t *testing.T) {
	all := slices.Clone(scenario.All)
	for _, tt := range traces {
		all = append(all, scenario.Scenario{Flags: strings.Fields(tt.flags), Conn: tt.conn, Pod: tt.pod})
	}
	noticed := map[string]bool{}
	for _, s := range all {
		for _, backend := range backends {
			rs := build(t, s, backend)
			want := end(rs.Trace(s.Conn, s.Pod))
			for _, c := range rs.Chains {
				if c.Name == "record" {
					continue
				}
				for _, r := range c.Rules {
					kind := numbers.ReplaceAllString(r.Reason, "N")
					noticed[kind] = noticed[kind] || end(without(rs, r.Reason).Trace(s.Conn, s.Pod)) != want
				}
			}
		}
	}
	for kind := range harmless {
		if _, there := noticed[kind]; !there {
			t.Errorf("rules %q: there are none", kind)
		}
	}
	for kind, ok := range noticed {
		if _, known := harmless[kind]; ok == known {
			t.Errorf("rules %q: loss noticed %t, known as harmless %t", kind, ok, known)
		}
	}
}

// A packet that comes in has no owner, so neither a condition about one nor its
// opposite is met: such rules belong to output.
func TestTraceHasNoOwnerOutsideOutput(t *testing.T) {
	var rules []capture.Rule
	for _, key := range []capture.Key{capture.UID, capture.GID} {
		for _, not := range []bool{false, true} {
			rules = append(rules, capture.Rule{
				Match:  []capture.Match{{Key: key, Num: 0, Not: not}},
				Action: capture.Action{Verb: capture.Drop},
			})
		}
	}
	rs := capture.Ruleset{Families: capture.DualStack, Chains: []capture.Chain{
		{Name: "a", Table: capture.Mangle, Hook: capture.Prerouting, Rules: rules},
		{Name: "b", Table: capture.Filter, Hook: capture.Input, Rules: rules},
	}}
	pod := capture.Pod{Listeners: []capture.Listener{{Proto: capture.TCP, Port: 2}}}
	for _, c := range []capture.Conn{
		sent(capture.TCP, 0, 0, "lo", "10.9.0.2:1", "10.9.0.2:2"),
		{Proto: capture.TCP, Src: at("10.9.0.1:1"), Dst: at("10.9.0.2:2"), In: "eth0"},
	} {
		if got := rs.Trace(c, pod); got.Fate != capture.Passes {
			t.Errorf("Trace = %s", got)
		}
	}
}
