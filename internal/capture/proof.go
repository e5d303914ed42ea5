package capture

// proof appends the rules by which a finished capture can be tried on the spot.
// A packet with a proof's mark takes the way of any other; where it arrives it is
// counted and rejected, so that nobody has to listen, nothing leaves the pod, and
// no other connection is touched. Setting a mark needs NET_ADMIN.
func (b *builder) proof() {
	// A redirected packet still has the interface of its first route here, so it is
	// known by its port.
	b.chain("filter-output", Filter, Output).
		add("proof: was not captured, and must not leave the pod", reject, tcp, mark(ProofOut), not(oif("lo")), not(dport(b.in.OutboundPort)))
	if b.rs.Chain("input") == nil { // parking is off
		b.proofArrivals(b.chain("input", Filter, Input))
	}
}

// proofArrivals appends the end of the way of both proofs.
func (b *builder) proofArrivals(input *ruleList) {
	input.add(ReasonProofOut, reject, tcp, mark(ProofOut), dport(b.in.OutboundPort))
	input.add("proof: an outbound connection arrived somewhere else", reject, tcp, mark(ProofOut))
	if b.in.Mode == RedirectMode {
		input.add(ReasonProofIn, reject, tcp, mark(ProofIn), dport(b.in.InboundPort))
	}
	input.add("proof: the end of an inbound connection", reject, tcp, mark(ProofIn))
	if b.in.Mode == TProxyMode {
		input.add("no proxy took it: refused", reject, tcp, mark(refuseMark))
	}
}
