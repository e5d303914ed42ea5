package capture

// proof appends the rules by which a finished capture is tried. A packet with a
// proof's mark takes the same path as any other. Where it arrives it is counted and
// rejected, so that no listener is needed, nothing leaves the pod, and no other
// connection is affected. Setting a mark needs NET_ADMIN.
func (b *builder) proof() {
	// A redirected packet still has the interface of its first route here, so it is
	// recognised by its port.
	b.chain("filter-output", Filter, Output).
		add("proof: was not captured, and must not leave the pod", reject, tcp, mark(ProofOut), not(oif("lo")), not(dport(b.in.OutboundPort)))
	if b.rs.Chain("input") == nil { // parking is off
		b.proofArrivals(b.chain("input", Filter, Input))
	}
}

// proofArrivals appends where the packets of both proofs end.
func (b *builder) proofArrivals(input *ruleList) {
	input.add(ReasonProofOut, reject, tcp, mark(ProofOut), dport(b.in.OutboundPort))
	input.add("proof: an outbound connection arrived somewhere else", reject, tcp, mark(ProofOut))
	if b.in.Mode == RedirectMode {
		input.add(ReasonProofIn, reject, tcp, mark(ProofIn), dport(b.in.InboundPort))
	}
	input.add("proof: an inbound connection arrived somewhere else", reject, tcp, mark(ProofIn))
	if b.in.Mode == TProxyMode {
		input.add("not taken by the proxy: refused", reject, tcp, mark(refuseMark))
	}
}
