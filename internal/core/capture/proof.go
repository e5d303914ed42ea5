package capture

// proof appends the rules that test a finished capture. A packet with a proof's mark takes the same
// path as any other packet. At its destination it is counted and rejected, so a proof needs no
// listener, sends nothing out of the pod, and affects no other connection. Setting a mark requires
// NET_ADMIN.
func (b *builder) proof() {
	// A redirected packet still has the interface of its first route here, so the rule recognises
	// the packet by its port.
	b.chain("filter-output", Filter, Output).
		add("proof: was not captured, and must not leave the pod", reject, tcp, mark(ProofOut), not(oif("lo")), not(dport(b.in.OutboundPort)))
	if b.rs.Chain("input") == nil { // parking is off
		b.proofArrivals(b.chain("input", Filter, Input))
	}
}

// proofArrivals appends the rules that count the packets of both proofs.
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
