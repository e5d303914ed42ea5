package capture

import (
	"net/netip"
	"slices"
	"strings"

	"outrider.dev/internal/base/contract"
)

// Destinations of the agent's proofs.
var (
	proofsOut = []netip.Prefix{contract.ProofOutbound, contract.ProofOutbound6}
	proofsIn  = passthrough
)

// agentProofs appends to the chain output, before all exclusions, the rules for those proofs by the agent that the
// settings would leave alone. The other proofs take the path of other connections, which proves more.
func (b *builder) agentProofs(out *ruleList) {
	if b.in.Mode == RedirectMode {
		b.proofIn(out, redirect(b.in.InboundPort), oif("lo"))
	}
	if b.in.leavesProofOut() {
		out.proofOut(jump(appChain))
		b.chain(appChain, NAT, NoHook).proofOut(redirect(b.in.OutboundPort))
	}
}

// proofIn appends rules for the inbound proof, if the settings would leave it alone. The source keeps the proxy's own
// connections to the app apart: it would connect to itself endlessly.
func (b *builder) proofIn(l *ruleList, do Action, where ...Match) {
	if !b.in.leavesProofIn() {
		return
	}
	for _, p := range proofsIn {
		l.add("proof by the agent: treated as if it came from outside", do, append(slices.Clip(where), tcp, to(p), not(from(p)), dport(contract.ProbePort))...)
	}
}

// proofOut appends rules for the outbound proof. The source port keeps Envoy's connections apart: it would connect to
// itself endlessly.
func (l *ruleList) proofOut(do Action) {
	l.addresses("", "proof by the agent: treated as if the app had sent it", do, proofsOut, to, tcp, sport(contract.ProbePort))
}

// leavesProofIn reports whether the settings exempt the agent's inbound proof.
func (in Intent) leavesProofIn() bool {
	excluded, interfaces := in.ExcludeOutboundPorts, in.ExcludeInterfaces
	if in.Mode == TProxyMode {
		if !in.InboundPorts.All || in.ExcludeInboundPorts.All {
			return true
		}
		excluded, interfaces = in.ExcludeInboundPorts.List, slices.Concat(interfaces, in.VirtualInterfaces)
	}
	return slices.Contains(excluded, contract.ProbePort) || in.TunnelPort == contract.ProbePort ||
		in.Loopback.Contains(contract.ProofInbound) ||
		slices.ContainsFunc(interfaces, func(pattern string) bool {
			prefix, wild := strings.CutSuffix(pattern, "+")
			return pattern == "lo" || wild && strings.HasPrefix("lo", prefix)
		})
}

// leavesProofOut reports whether the settings exempt the agent's outbound proof, or may do so: by which interface it
// leaves depends on the pod's routes.
func (in Intent) leavesProofOut() bool {
	return !in.OutboundRanges.All && !in.OutboundPorts.All || !in.OwnerGroups.All || len(in.ExcludeInterfaces) > 0 ||
		slices.ContainsFunc(in.ExcludeOutboundPorts, func(p uint16) bool { return p >= contract.ProbePort && p < contract.ProbePort+contract.ProofPorts }) ||
		slices.ContainsFunc(in.ExcludeOutboundRanges, func(p netip.Prefix) bool { return slices.ContainsFunc(proofsOut, p.Overlaps) }) ||
		slices.ContainsFunc(in.ExcludeOwnerGroups, func(group uint32) bool { return slices.Contains(in.ProxyGIDs, group) })
}
