package envoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"outrider.dev/internal/contract"
)

// A FieldError is an option that cannot work.
type FieldError struct {
	Field   string // for example "Node.ID"
	Problem string
	Want    string // what would be right
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem + "; " + e.Want }

// levels are Envoy's, and what slog calls them.
var levels = map[string]bool{"trace": true, "debug": true, "info": true, "warning": true, "warn": true, "error": true, "critical": true, "off": true}

const wantLevel = "use trace, debug, info, warning, error, critical or off"

// taken are ports of the pod that Envoy's own listeners must not use.
var taken = map[uint16]string{
	contract.OutboundPort: "outbound capture", contract.InboundPort: "inbound capture", contract.StatusPort: "the agent's status",
	contract.ReadinessPort: "readiness", contract.DNSPort: "the DNS proxy",
}

// A check collects what is wrong.
type check struct{ errs []error }

func (c *check) that(ok bool, field, problem, want string) {
	if !ok {
		c.errs = append(c.errs, &FieldError{Field: field, Problem: problem, Want: want})
	}
}

// text wants s to be something that a person wrote on one line.
func (c *check) text(field, s string) {
	c.that(utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }),
		field, fmt.Sprintf("%q has bytes that are no printable UTF-8", s), "write plain text")
}

// Check returns everything that cannot work, each as a [*FieldError], joined; nil if
// nothing is wrong. Defaults are in place before anything is looked at.
func (o Options) Check() error {
	o = o.withDefaults()
	c := &check{}
	c.node(o.Node)
	c.controlPlane(o.ControlPlane)
	c.ports(o)
	c.stats(o.Stats)
	c.log(o.Log)
	c.numbers(o)
	c.runtime(o.Runtime)
	if len(c.errs) == 0 && len(o.Extra) > 0 {
		_, err := o.merged()
		c.errs = append(c.errs, err)
	}
	return errors.Join(c.errs...)
}

func (c *check) node(n Node) {
	c.that(n.ID != "", "Node.ID", "it is empty", "give the proxy's name, as the control plane shall see it")
	for _, f := range []struct{ name, value string }{{"ID", n.ID}, {"Cluster", n.Cluster}, {"Region", n.Region}, {"Zone", n.Zone}, {"SubZone", n.SubZone}} {
		c.text("Node."+f.name, f.value)
	}
	raw, err := json.Marshal(n.Metadata)
	c.that(err == nil, "Node.Metadata", fmt.Sprintf("it is no JSON: %v", err), "use maps, lists, strings, numbers and booleans")
	if err == nil {
		c.that(json.Valid(raw), "Node.Metadata", "it is no JSON", "use maps, lists, strings, numbers and booleans")
	}
}

func (c *check) controlPlane(cp ControlPlane) {
	c.that(len(cp.Addresses) > 0, "ControlPlane.Addresses", "there is none", "give host:port, for example outriderd.outrider-system.svc:15012")
	for _, a := range cp.Addresses {
		_, _, err := splitAddress(a)
		c.that(err == nil, "ControlPlane.Addresses", fmt.Sprintf("%q: %v", a, err), "write host:port, for example 10.0.0.1:15012 or [fd00::1]:15012")
	}
	c.that(cp.ConnectTimeout >= time.Millisecond, "ControlPlane.ConnectTimeout", cp.ConnectTimeout.String(), "use 1ms or more")
	c.that(cp.KeepAlive >= time.Millisecond, "ControlPlane.KeepAlive", cp.KeepAlive.String(), "use 1ms or more")
	if cp.Plaintext {
		c.that(cp.SNI == "" && len(cp.Identity) == 0 && cp.Secrets == "", "ControlPlane.Plaintext",
			"a plaintext control plane proves no identity", "leave SNI, Identity and Secrets empty, or do without Plaintext")
		return
	}
	c.text("ControlPlane.SNI", cp.SNI)
	c.that(len(cp.SNI) < 256, "ControlPlane.SNI", "it is too long", "a server name has at most 255 bytes")
	c.that(cp.Secrets != "", "ControlPlane.Secrets", "it is empty", "name the socket on which the agent tells secrets")
	c.socket("ControlPlane.Secrets", cp.Secrets)
	c.that(len(cp.Identity) > 0, "ControlPlane.Identity", "there is none, and no address is a name that could stand for it",
		"give the SPIFFE URI or DNS name in the control plane's certificate")
	for _, id := range cp.Identity {
		c.text("ControlPlane.Identity", id)
		c.that(id != "", "ControlPlane.Identity", "one is empty", "give a SPIFFE URI or a DNS name")
	}
}

// hostRunes are those of DNS names, and the underscore.
const hostRunes = "-._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// splitAddress returns the parts of an address with a valid host and a port that is a number.
func splitAddress(address string) (host string, port uint16, err error) {
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		var a *net.AddrError
		if errors.As(err, &a) {
			return "", 0, errors.New(a.Err)
		}
		return "", 0, err
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("port %q is none", p)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return "", 0, errors.New("an address with a zone")
		}
		return a.String(), uint16(n), nil
	}
	if host == "" || len(host) > 253 || strings.ContainsFunc(host, func(r rune) bool { return !strings.ContainsRune(hostRunes, r) }) {
		return "", 0, fmt.Errorf("host %q is none", host)
	}
	return host, uint16(n), nil
}

// socket checks the path of a Unix socket.
func (c *check) socket(field, path string) {
	c.text(field, path)
	// struct sockaddr_un has 108 bytes, one of them for the end (unix(7)).
	c.that(len(path) < 108, field, fmt.Sprintf("the path is too long: %d bytes (%q)", len(path), path), "use at most 107 bytes")
	c.that(!strings.HasPrefix(path, "@"), field, "it is an abstract socket, open to every user of the pod", "use a path")
}

func (c *check) ports(o Options) {
	c.that(o.Family <= Dual, "Family", o.Family.String(), "use IPv4, IPv6 or Dual")
	c.that(o.Admin.Socket == "" || o.Admin.Port == 0, "Admin", "it has a port and a socket", "use one of them")
	c.socket("Admin.Socket", o.Admin.Socket)
	c.that(taken[o.Admin.Port] == "", "Admin.Port", fmt.Sprintf("%d is for %s", o.Admin.Port, taken[o.Admin.Port]), "use another, or leave it at 15000")
	if o.NoPrometheus {
		return
	}
	c.that(taken[o.Prometheus] == "", "Prometheus", fmt.Sprintf("%d is for %s", o.Prometheus, taken[o.Prometheus]), "use another, or leave it at 15090")
	c.that(o.Prometheus != o.Admin.Port, "Prometheus", fmt.Sprintf("%d is the admin's port too", o.Prometheus), "use another, or leave it at 15090")
}

func (c *check) stats(s Stats) {
	c.that(!s.All || len(s.Prefixes)+len(s.Suffixes)+len(s.Regexps) == 0, "Stats.All", "everything is kept, so no list can add to it", "leave the lists empty, or All")
	for _, list := range []struct {
		field   string
		entries []string
	}{{"Prefixes", s.Prefixes}, {"Suffixes", s.Suffixes}, {"Regexps", s.Regexps}} {
		for _, e := range list.entries {
			c.text("Stats."+list.field, e)
			c.that(e != "", "Stats."+list.field, "an entry is empty", "leave it out; Stats.All keeps everything")
		}
	}
	for _, e := range s.Regexps {
		_, err := regexp.Compile(e)
		c.that(err == nil, "Stats.Regexps", fmt.Sprintf("%q: %v", e, err), "use RE2 syntax")
	}
}

func (c *check) log(l Log) {
	c.that(levels[l.Level], "Log.Level", fmt.Sprintf("%q is no level", l.Level), wantLevel)
	for _, name := range slices.Sorted(maps.Keys(l.Components)) {
		c.that(name != "" && !strings.ContainsFunc(name, func(r rune) bool {
			return r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9')
		}), "Log.Components", fmt.Sprintf("%q is no component", name), "use a name such as upstream, http or connection")
		c.that(levels[l.Components[name]], "Log.Components", fmt.Sprintf("%s: %q is no level", name, l.Components[name]), wantLevel)
	}
}

func (c *check) numbers(o Options) {
	// Each worker has a thread and its own connections to every upstream.
	c.that(o.Concurrency >= 1 && o.Concurrency <= 1024, "Concurrency", strconv.Itoa(o.Concurrency), "use 1 to 1024")
	c.that(o.DrainTime >= time.Second && o.DrainTime%time.Second == 0 && o.DrainTime/time.Second <= math.MaxUint32,
		"DrainTime", o.DrainTime.String(), "use whole seconds, 1s or more")
	c.that(o.Limits.Connections <= math.MaxInt64, "Limits.Connections", strconv.FormatUint(o.Limits.Connections, 10), "use less than 2^63")
}

func (c *check) runtime(r map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(r)) {
		c.text("Runtime", name)
		c.that(name != "", "Runtime", "a name is empty", "give the flag's name")
		switch v := r[name].(type) {
		case bool, int, int32, int64, uint32:
		case string:
			c.text("Runtime", v)
		case float64:
			c.that(!math.IsNaN(v) && !math.IsInf(v, 0), "Runtime", fmt.Sprintf("%s: %v is no number of JSON", name, v), "use a finite number")
		default:
			c.that(false, "Runtime", fmt.Sprintf("%s: %T", name, v), "use a bool, a number or a string")
		}
	}
}
