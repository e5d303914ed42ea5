package check

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/telemetry"
)

// tlsUse counts the connections by mutual TLS that a proxy accepted since it started.
type tlsUse struct {
	accepted uint64   // all of them
	old      uint64   // those by TLS 1.2
	refused  uint64   // certificates of clients
	callers  []string // identities of clients by TLS 1.2 whose connections have ended
}

// reported reports whether there was anything to count. Envoy has no counter of a version that was never used.
func (u *tlsUse) reported() bool { return u.accepted+u.refused > 0 }

// maxCount limits the value of a counter: the application can write Envoy's names into its own metrics.
const maxCount = 1 << 50

// read adds the value in a line of Prometheus' text format, if it is one of these counters.
func (u *tlsUse) read(line string) {
	name, ok := strings.CutPrefix(line, "envoy_listener_ssl_")
	if caller, is := strings.CutPrefix(line, telemetry.OldTLSCaller); is {
		caller, _, is = strings.Cut(caller, `"`)
		if is && spiffe.MatchString(caller) && len(u.callers) < maxCallers && !slices.Contains(u.callers, caller) {
			u.callers = append(u.callers, caller)
		}
		return
	}
	space := strings.LastIndexByte(name, ' ')
	if !ok || space < 0 {
		return
	}
	n, err := strconv.ParseUint(name[space+1:], 10, 64)
	if err != nil || n > maxCount {
		return
	}
	switch name, _, _ = strings.Cut(name[:space], "{"); name {
	case "versions_TLSv1_2":
		u.old += n
		u.accepted += n
	case "versions_TLSv1_3":
		u.accepted += n
	case "fail_verify_error", "fail_verify_san":
		u.refused += n
	}
}

// spiffe matches an identity. The application's metrics are in the same answer, and may contain anything.
var spiffe = regexp.MustCompile(`^spiffe://[a-zA-Z0-9._/-]{1,300}$`)

// maxCallers limits the clients of one proxy that are named.
const maxCallers = 20

const (
	oldTLSHint  = "such a client has another configuration than this control plane's: a proxy that is connected to no replica, or an Envoy of its own; docs/security.md has how TLS 1.2 is refused"
	refusedHint = "a client without a certificate of the mesh called, or the roots, or the clock, of this pod or of its clients are wrong: see the checks root-certificates and clock; calls to it fail, unless they are GET, HEAD or OPTIONS and there is another endpoint"
)

func (p proxyState) tls() answer {
	u := p.agent.tls
	switch {
	case p.agent.err != nil:
		return unknown(p.agent.err)
	case !u.reported():
		return skipped("it reports no versions of TLS: it has accepted no connection by mutual TLS, or is of an older version")
	}
	var said, hints []string
	if u.refused > 0 {
		said = append(said, fmt.Sprintf("it refused the certificate of a client %s since it started", count(int(u.refused))))
		hints = append(hints, refusedHint)
	}
	if u.old > 0 {
		said = append(said, fmt.Sprintf("%d of %d connections since it started were by TLS 1.2%s", u.old, u.accepted, from(u.callers)))
		hints = append(hints, oldTLSHint)
	}
	if len(said) > 0 {
		return warning(strings.Join(hints, "; "), "%s", strings.Join(said, "; "))
	}
	return fine("all of %s since it started by TLS 1.3", plural(int(u.accepted), "connection", "connections"))
}

func from(callers []string) string {
	if len(callers) == 0 {
		return ""
	}
	return ", from " + cli.Few(callers)
}

// tls counts the proxies that clients call by TLS 1.2. It asks as many agents as the checks of single proxies do.
func (s *survey) tls(ctx context.Context) answer {
	meshed, err := s.meshedPods(ctx)
	if err != nil {
		return unknown(err)
	}
	states := statesOf(meshed, nil, nil)
	askAll(ctx, states, s.askAgent)
	var old, callers []string
	var asked int
	for _, p := range states {
		switch u := p.agent.tls; {
		case p.agent.err != nil:
			err = p.agent.err
		case u.reported():
			asked++
			if u.old > 0 {
				old = append(old, p.pod.Namespace+"/"+p.pod.Name)
				callers = append(callers, u.callers...)
			}
		}
	}
	slices.Sort(old)
	slices.Sort(callers)
	switch {
	case len(states) == 0:
		return fine("no pod has a proxy")
	case len(old) > 0:
		return warning(oldTLSHint, "of %s %d got connections by TLS 1.2 since they started: %s%s", plural(asked, "proxy that reports it", "proxies that report it"),
			len(old), cli.Few(old), from(slices.Compact(callers)))
	case asked > 0:
		return fine("%d of %s report that all connections were by TLS 1.3", asked, plural(len(states), "proxy", "proxies"))
	case err != nil:
		return unknown(err)
	}
	return skipped("no proxy reports versions of TLS: none has accepted a connection by mutual TLS, or all are of an older version")
}
