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
	"outrider.dev/internal/core/capture/trace"
	"outrider.dev/test/scenario"
)

var backends = []string{capture.NFTables, capture.IPTables}

// build returns the rule set of a scenario.
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
				way := trace.Follow(build(t, s, backend), s.Conn, s.Pod)
				got := scenario.Want{Fate: way.Fate, Port: way.Port}
				if diff := cmp.Diff(s.For(backend), got); diff != "" {
					t.Errorf("%s, flags %q: (-want +got):\n%s%s", backend, s.Flags, diff, way)
				}
			}
		})
	}
}

// traces contains packets with additional effects: marks, zones and remembered absences.
var traces = map[string]struct {
	flags string
	conn  trace.Conn
	pod   trace.Pod
	want  trace.Trace // without Conn and Steps
}{
	"the first attempt starts the time of an absence": {
		flags: "-i *",
		conn:  sent(capture.TCP, 1000, 1000, "eth0", "10.9.0.2:40000", "10.96.0.10:80"),
		want:  trace.Trace{Fate: trace.Parked, Port: 15001, Remembered: []string{"gone-15001", "parking-15001"}},
	},
	"an attempt after the limit keeps the memory": {
		flags: "-i *",
		conn:  sent(capture.TCP, 1000, 1000, "eth0", "10.9.0.2:40000", "10.96.0.10:80"),
		pod:   trace.Pod{Remembered: []string{"gone-15001"}},
		want:  trace.Trace{Fate: trace.Refused, Port: 15001, Remembered: []string{"gone-15001"}},
	},
	"a listener that is back clears the memory": {
		flags: "-i *",
		conn:  sent(capture.TCP, 1000, 1000, "eth0", "10.9.0.2:40000", "10.96.0.10:80"),
		pod:   trace.Pod{Listeners: []trace.Listener{{Proto: capture.TCP, Port: 15001}}, Remembered: []string{"gone-15001", "parking-15001", "gone-15006"}},
		want:  trace.Trace{Fate: trace.Redirected, Port: 15001, Remembered: []string{"gone-15006"}},
	},
	"the proxy's user ends the parking": {
		conn: sent(capture.UDP, 1337, 1, "lo", "127.0.0.1:15002", "127.0.0.6:15001"),
		pod:  trace.Pod{Remembered: []string{"gone-15001", "gone-15006", "parking-15001", "parking-15006"}},
		want: trace.Trace{Fate: trace.Dropped, Port: 15001, Remembered: []string{"gone-15001", "gone-15006", "parking-15006"}},
	},
	"a release to another address has no effect": {
		conn: sent(capture.UDP, 1337, 1, "lo", "127.0.0.1:15002", "127.0.0.1:15001"),
		want: trace.Trace{Fate: trace.Refused, Port: 15001},
	},
	"a stray packet is not parked": {
		conn: stray(sent(capture.TCP, 1000, 1000, "lo", "127.0.0.1:40000", "127.0.0.1:15001")),
		want: trace.Trace{Fate: trace.Refused, Port: 15001},
	},
	"with '*' a stray packet is not parked": {
		flags: "--park-ports *",
		conn:  stray(sent(capture.TCP, 1000, 1000, "lo", "127.0.0.1:40000", "127.0.0.1:8083")),
		want:  trace.Trace{Fate: trace.Refused, Port: 8083},
	},
	"'*' parks without capture": {
		flags: "-m NONE --park-ports *",
		conn:  sent(capture.TCP, 1000, 1000, "lo", "127.0.0.1:40000", "127.0.0.1:8083"),
		want:  trace.Trace{Fate: trace.Parked, Port: 8083, Remembered: []string{"gone-8083", "parking-8083"}},
	},
	"the proxy's group ends the parking before a connection has waited": {
		conn: sent(capture.UDP, 1, 1337, "lo", "[::1]:15002", "[::1]:15006"),
		want: trace.Trace{Fate: trace.Dropped, Port: 15006, Remembered: []string{"gone-15006"}},
	},
	"root ends the parking": {
		conn: sent(capture.UDP, 0, 0, "lo", "127.0.0.1:15002", "127.0.0.6:15001"),
		want: trace.Trace{Fate: trace.Dropped, Port: 15001, Remembered: []string{"gone-15001"}},
	},
	"the app cannot end the parking": {
		conn: sent(capture.UDP, 1000, 1000, "lo", "127.0.0.1:15002", "127.0.0.6:15001"),
		want: trace.Trace{Fate: trace.Refused, Port: 15001},
	},
	"with --park-only the app ends the parking": {
		flags: "--park-only",
		conn:  sent(capture.UDP, 1000, 1000, "lo", "127.0.0.1:15002", "127.0.0.6:4140"),
		pod:   trace.Pod{Remembered: []string{"parking-4140"}},
		want:  trace.Trace{Fate: trace.Dropped, Port: 4140, Remembered: []string{"gone-4140"}},
	},
	"one of several users may end the parking": {
		flags: "-u 1337,2000",
		conn:  sent(capture.UDP, 2000, 1, "lo", "127.0.0.1:15002", "127.0.0.6:15001"),
		want:  trace.Trace{Fate: trace.Dropped, Port: 15001, Remembered: []string{"gone-15001"}},
	},
	"one of several groups may end the parking": {
		flags: "-g 1337,2000",
		conn:  sent(capture.UDP, 1, 2000, "lo", "127.0.0.1:15002", "127.0.0.6:15001"),
		want:  trace.Trace{Fate: trace.Dropped, Port: 15001, Remembered: []string{"gone-15001"}},
	},
	"one of several users is the proxy's": {
		flags: "-i * -u 1337,2000",
		conn:  sent(capture.TCP, 2000, 1, "eth0", "10.9.0.2:40000", "10.96.0.10:80"),
		want:  trace.Trace{Fate: trace.Passes, Port: 80},
	},
	"a user between several is not the proxy's": {
		flags: "-i * -u 1337,2000",
		conn:  sent(capture.TCP, 1500, 1500, "eth0", "10.9.0.2:40000", "10.96.0.10:80"),
		want:  trace.Trace{Fate: trace.Parked, Port: 15001, Remembered: []string{"gone-15001", "parking-15001"}},
	},
	"a port that is not parked cannot be released": {
		conn: sent(capture.UDP, 0, 0, "lo", "127.0.0.1:15002", "127.0.0.6:9999"),
		pod:  trace.Pod{Remembered: []string{"parking-9999"}},
		want: trace.Trace{Fate: trace.Refused, Port: 9999, Remembered: []string{"parking-9999"}},
	},
	"a packet from another port is not a release": {
		conn: sent(capture.UDP, 0, 0, "lo", "127.0.0.1:40000", "127.0.0.6:15001"),
		want: trace.Trace{Fate: trace.Refused, Port: 15001},
	},
	"with '*' any port can be released": {
		flags: "--park-ports *",
		conn:  sent(capture.UDP, 0, 0, "lo", "127.0.0.1:15002", "127.0.0.6:8083"),
		pod:   trace.Pod{Remembered: []string{"parking-8083", "parking-8084"}},
		want:  trace.Trace{Fate: trace.Dropped, Port: 8083, Remembered: []string{"gone-8083", "parking-8084"}},
	},
	"with '*' a status port has no release": {
		flags: "--park-ports *",
		conn:  sent(capture.UDP, 0, 0, "lo", "127.0.0.1:15002", "127.0.0.6:15020"),
		want:  trace.Trace{Fate: trace.Refused, Port: 15020},
	},
	"a release by TCP has no effect": {
		conn: sent(capture.TCP, 0, 0, "lo", "127.0.0.1:15002", "127.0.0.6:15001"),
		pod:  trace.Pod{Listeners: []trace.Listener{{Proto: capture.TCP, Port: 15001}}},
		want: trace.Trace{Fate: trace.Passes, Port: 15001},
	},
	"the agent queries a name server in the first zone": {
		flags: "--redirect-dns --capture-all-dns",
		conn:  sent(capture.UDP, 1337, 1, "eth0", "10.9.0.2:40000", "10.96.0.10:53"),
		want:  trace.Trace{Fate: trace.Passes, Port: 53, Zone: 1},
	},
	"the agent's group queries a name server in the first zone": {
		flags: "--redirect-dns --capture-all-dns",
		conn:  sent(capture.UDP, 1, 1337, "eth0", "10.9.0.2:40000", "10.96.0.10:53"),
		want:  trace.Trace{Fate: trace.Passes, Port: 53, Zone: 1},
	},
	"a name server answers in the first zone": {
		flags: "--redirect-dns --capture-all-dns",
		conn:  trace.Conn{Proto: capture.UDP, Src: at("10.96.0.10:53"), Dst: at("10.9.0.2:40000"), In: "eth0", Reply: true},
		want:  trace.Trace{Fate: trace.Passes, Port: 40000, Zone: 1},
	},
	"the app queries the agent in the second zone": {
		flags: "--redirect-dns --capture-all-dns",
		conn:  sent(capture.UDP, 1000, 1000, "eth0", "10.9.0.2:40000", "10.96.0.10:53"),
		pod:   trace.Pod{Listeners: []trace.Listener{{Proto: capture.UDP, Port: 15053}}},
		want:  trace.Trace{Fate: trace.Redirected, Port: 15053, Zone: 2},
	},
	"the agent answers the app in the second zone": {
		flags: "--redirect-dns --capture-all-dns",
		conn:  answer(sent(capture.UDP, 1337, 1, "lo", "127.0.0.1:15053", "10.9.0.2:40000")),
		want:  trace.Trace{Fate: trace.Passes, Port: 40000, Zone: 2},
	},
	"the agent's group answers the app in the second zone": {
		flags: "--redirect-dns --capture-all-dns",
		conn:  answer(sent(capture.UDP, 1, 1337, "lo", "[::1]:15053", "[fd09::2]:40000")),
		want:  trace.Trace{Fate: trace.Passes, Port: 40000, Zone: 2},
	},
	"Envoy's connection to a proof's destination leaves the pod: it would come back to Envoy endlessly": {
		flags: "-i *",
		conn:  sent(capture.TCP, 1337, 1337, "eth0", "10.9.0.2:40000", "192.0.2.9:15002"),
		want:  trace.Trace{Fate: trace.Passes, Port: 15002},
	},
	"a connection that is taken transparently is marked": {
		flags: "-m TPROXY -b *",
		conn:  trace.Conn{Proto: capture.TCP, Src: at("10.9.0.1:40000"), Dst: at("10.9.0.2:8080"), In: "eth0"},
		pod:   trace.Pod{Listeners: []trace.Listener{{Proto: capture.TCP, Port: 15006, Transparent: true}}},
		want:  trace.Trace{Fate: trace.Taken, Port: 15006, Mark: 1337, ConnMark: 1339},
	},
	"a connection that is taken transparently clears the memory": {
		flags: "-m TPROXY -b *",
		conn:  trace.Conn{Proto: capture.TCP, Src: at("10.9.0.1:40000"), Dst: at("10.9.0.2:8080"), In: "eth0"},
		pod: trace.Pod{
			Listeners:  []trace.Listener{{Proto: capture.TCP, Port: 15006, Transparent: true}},
			Remembered: []string{"gone-15001", "gone-15006", "parking-15006"},
		},
		want: trace.Trace{Fate: trace.Taken, Port: 15006, Mark: 1337, ConnMark: 1339, Remembered: []string{"gone-15001"}},
	},
	"a later packet of a connection that was taken keeps the memory": {
		flags: "-m TPROXY -b *",
		conn:  trace.Conn{Proto: capture.TCP, Src: at("10.9.0.1:40000"), Dst: at("10.9.0.2:8080"), In: "eth0", Established: true, ConnMark: 1339},
		pod:   trace.Pod{Remembered: []string{"gone-15006", "parking-15006"}},
		want:  trace.Trace{Fate: trace.Taken, Port: 15006, Mark: 1337, ConnMark: 1339, Remembered: []string{"gone-15006", "parking-15006"}},
	},
	"with TPROXY a connection to an excluded port keeps the memory": {
		flags: "-m TPROXY -b * -d 8080",
		conn:  trace.Conn{Proto: capture.TCP, Src: at("10.9.0.1:40000"), Dst: at("10.9.0.2:8080"), In: "eth0"},
		pod:   trace.Pod{Listeners: []trace.Listener{{Proto: capture.TCP, Port: 8080}}, Remembered: []string{"gone-15006", "parking-15006"}},
		want:  trace.Trace{Fate: trace.Passes, Port: 8080, Remembered: []string{"gone-15006", "parking-15006"}},
	},
	"the proxy's call to the app under the caller's address is marked": {
		flags: "-m TPROXY -b *",
		conn:  trace.Conn{Proto: capture.TCP, Src: at("10.9.0.1:40000"), Dst: at("10.9.0.2:8080"), Out: "lo", UID: 1337, GID: 1337, Mark: 1337},
		pod:   trace.Pod{Listeners: []trace.Listener{{Proto: capture.TCP, Port: 8080}}},
		want:  trace.Trace{Fate: trace.Passes, Port: 8080, Mark: 1337, ConnMark: 1337},
	},
	"the app's answer to the proxy stays in the pod by its mark": {
		flags: "-m TPROXY -b *",
		conn:  trace.Conn{Proto: capture.TCP, Src: at("10.9.0.2:8080"), Dst: at("10.9.0.1:40000"), Out: "eth0", UID: 1000, GID: 1000, ConnMark: 1337, Established: true, Reply: true},
		want:  trace.Trace{Fate: trace.Passes, Port: 40000, Mark: 1337, ConnMark: 1337},
	},
}

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func sent(proto, uid, gid uint32, out, src, dst string) trace.Conn {
	return trace.Conn{Proto: proto, Src: at(src), Dst: at(dst), Out: out, UID: uid, GID: gid}
}

// stray returns c as a packet that belongs to no connection.
func stray(c trace.Conn) trace.Conn {
	c.Invalid = true
	return c
}

func answer(c trace.Conn) trace.Conn {
	c.Established, c.Reply = true, true
	return c
}

func TestTraceLeavesBehind(t *testing.T) {
	for name, tt := range traces {
		t.Run(name, func(t *testing.T) {
			rs := build(t, scenario.Scenario{Flags: strings.Fields(tt.flags)}, capture.NFTables)
			got := trace.Follow(rs, tt.conn, tt.pod)
			whole := got
			got.Conn, got.Steps = trace.Conn{}, nil
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("Trace (-want +got):\n%s%s", diff, whole)
			}
		})
	}
}

// without returns rs without the rules that have this reason.
func without(rs capture.Ruleset, reason string) capture.Ruleset {
	rs.Chains = slices.Clone(rs.Chains)
	for i := range rs.Chains {
		c := &rs.Chains[i]
		c.Rules = slices.DeleteFunc(slices.Clone(c.Rules), func(r capture.Rule) bool { return r.Reason == reason })
	}
	return rs
}

// end formats where a trace ends and which state it leaves.
func end(t trace.Trace) string {
	return fmt.Sprint(t.Fate, t.Port, t.Mark, t.ConnMark, t.Zone, t.Remembered)
}

// harmless contains the kinds of rules whose loss changes no connection's end, each with its
// purpose.
var harmless = map[string]string{
	"proof: an outbound connection arrived at the proxy's port": "its counter: the next rule rejects as well",
	"proof: an inbound connection arrived at the proxy's port":  "its counter: the next rule rejects as well",
	"the absence goes on": "the age of the memory, which a trace does not have",
	"the proxy's own traffic is not captured: it would loop":     "its counter: the chain ends there",
	"refused at input: it must not reach the app past the proxy": "its counter: the chain ends there",
	"every port is excluded (-d *)":                              "its counter: no rule of -b comes after it",
}

var numbers = regexp.MustCompile(`\d+`)

// If no scenario notices the loss of a rule, the rule is useless or untested.
func TestScenariosNoticeTheLossOfEveryRule(t *testing.T) {
	all := slices.Clone(scenario.All)
	for _, tt := range traces {
		all = append(all, scenario.Scenario{Flags: strings.Fields(tt.flags), Conn: tt.conn, Pod: tt.pod})
	}
	noticed := map[string]bool{}
	for _, s := range all {
		for _, backend := range backends {
			rs := build(t, s, backend)
			want := end(trace.Follow(rs, s.Conn, s.Pod))
			for _, c := range rs.Chains {
				if c.Name == "record" {
					continue
				}
				for _, r := range c.Rules {
					kind := numbers.ReplaceAllString(r.Reason, "N")
					noticed[kind] = noticed[kind] || end(trace.Follow(without(rs, r.Reason), s.Conn, s.Pod)) != want
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
