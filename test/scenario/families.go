package scenario

import (
	"net/netip"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/trace"
)

const (
	only4 = everything + "--families ipv4 "
	only6 = everything + "--families ipv6 "
)

var families = []Scenario{
	when("IPv4 alone: a call by IPv4 is captured", only4, tcp(app, service), ready, lands(15001)),
	when("IPv4 alone: a call by IPv6 leaves the pod", only4, tcp(app, service6), ready, passes),
	when("IPv4 alone: inbound IPv4 is captured", only4, fromPeer(own), ready, lands(15006)),
	when("IPv4 alone: inbound IPv6 is left alone", only4, fromPeer(own6), ready, passes),
	when("IPv4 alone: the proxy calls the pod's own IPv6 address directly", only4, tcp(proxy, own6), ready, passes),
	when("IPv4 alone: IPv6 is not parked", only4, tcp(app, "[::1]:15001"), early, refused(15001)),
	when("IPv4 alone: IPv4 is parked", only4, tcp(app, "127.0.0.1:15001"), early, waits(15001)),
	when("IPv4 alone: queries by IPv6 leave the pod", only4+"--redirect-dns --capture-all-dns", udp(app, server6), ready, passes),
	when("IPv4 alone: TPROXY leaves IPv6 alone", only4+"-m TPROXY", fromPeer(own6), ready, passes),
	when("IPv4 alone: TPROXY takes IPv4", only4+"-m TPROXY", fromPeer(own), ready, taken(15006)),
	when("IPv6 alone: a call by IPv6 is captured", only6, tcp(app, service6), ready, lands(15001)),
	when("IPv6 alone: a call by IPv4 leaves the pod", only6, tcp(app, service), ready, passes),
	when("IPv6 alone: inbound IPv6 is captured", only6, fromPeer(own6), ready, lands(15006)),
	when("IPv6 alone: inbound IPv4 is left alone", only6, fromPeer(own), ready, passes),
	when("IPv6 alone: the proxy passes on from ::6 to the app", only6, bound(tcp(proxy, own6), "::6"), ready, passes),
	when("IPv6 alone: ::1 stays in the pod", only6, tcp(app, loop6), ready, passes),
	when("IPv6 alone: IPv6 is parked", only6, tcp(app, service6), early, waits(15001)),
	when("dual: a call by IPv4 is captured", everything+"--families dual", tcp(app, service), ready, lands(15001)),
	when("dual: a call by IPv6 is captured", everything+"--dual-stack", tcp(app, service6), ready, lands(15001)),
}

// broken returns c as a packet that connection tracking cannot assign to a connection.
func broken(c trace.Conn) trace.Conn {
	c = older(c)
	c.Invalid = true
	return c
}

const dropInvalid = everything + "--drop-invalid "

// proof returns c from the source port of the agent's proofs. Each scenario has another destination, since connection
// tracking remembers where the last packet with the same addresses and ports went.
func proof(c trace.Conn) trace.Conn {
	c.Src = netip.AddrPortFrom(c.Src.Addr(), contract.ProbePort)
	return c
}

// port8080 captures one inbound port transparently.
const port8080 = "-m TPROXY -i * -b 8080 "

// checks are scenarios for packets outside the TCP window, and for the connections by which capture proves that
// its rules work.
var checks = []Scenario{
	when("--drop-invalid leaves outbound calls captured", dropInvalid, tcp(app, service), ready, lands(15001)),
	when("--drop-invalid leaves inbound connections captured", dropInvalid, fromPeer(own), ready, lands(15006)),
	when("--drop-invalid leaves inbound IPv6 connections captured", dropInvalid, fromPeer(own6), ready, lands(15006)),
	when("--drop-invalid leaves the proxy's passing on alone", dropInvalid, bound(tcp(proxy, own), "127.0.0.6"), ready, passes),
	when("--drop-invalid leaves older connections alone", dropInvalid, older(fromPeer(own)), ready, passes),
	when("--drop-invalid leaves TPROXY alone", dropInvalid+"-m TPROXY", fromPeer(own), ready, taken(15006)),
	when("--drop-invalid drops a packet out of window", dropInvalid, broken(fromPeer(own)), ready, dropped(8080)),
	when("--drop-invalid drops an IPv6 packet out of window", dropInvalid, broken(fromPeer(own6)), ready, dropped(8080)),
	when("without --drop-invalid the kernel judges a packet out of window", everything, broken(fromPeer(own)), ready, passes),

	when("the outbound proof ends at the outbound port", everything, marked(tcp(root, service), capture.ProofOut), early, refused(15001)),
	when("the outbound proof by IPv6 ends at the outbound port", everything, marked(tcp(root, service6), capture.ProofOut), ready, refused(15001)),
	when("the outbound proof ends at the outbound port with parking off", everything+"--park=off", marked(tcp(root, service), capture.ProofOut), ready, refused(15001)),
	when("an outbound proof that is not captured does not leave the pod", istio, marked(tcp(root, service), capture.ProofOut), ready, refused(80)),
	when("an outbound proof within the pod does not reach the app", everything, marked(tcp(root, own), capture.ProofOut), ready, refused(8080)),
	when("the inbound proof ends at the inbound port", everything, marked(tcp(root, own), capture.ProofIn), early, refused(15006)),
	when("the inbound proof by IPv6 ends at the inbound port", everything, marked(tcp(root, own6), capture.ProofIn), ready, refused(15006)),
	when("an inbound proof to an excluded port ends there", everything+"-d 8080", marked(tcp(root, own), capture.ProofIn), ready, refused(8080)),
	when("the agent's proof is captured as the app's connections are", everything, proof(tcp(proxy, "192.0.2.1:15002")), ready, lands(15001)),
	when("the agent's proof by IPv6 is captured as the app's connections are", everything, proof(tcp(proxy, "[2001:db8::1]:15002")), ready, lands(15001)),
	when("with TPROXY the agent's proof is captured", transparent, proof(tcp(proxy, "192.0.2.2:15002")), ready, lands(15001)),
	when("the agent's proof waits for a proxy, as the app's connections do", everything, proof(tcp(proxy, "192.0.2.3:15002")), early, waits(15001)),
	when("another connection of the proxy from the proof's port passes", everything, proof(tcp(proxy, service)), ready, passes),
	when("the agent's inbound proof comes in", everything, tcp(proxy, proofIn), ready, lands(15006)),
	when("the agent's inbound proof comes in by IPv6", everything, bound(tcp(proxy, proofIn6), "::1"), ready, lands(15006)),
	when("-o does not exempt the agent's inbound proof", everything+"-o 15000:16000", tcp(proxy, proofIn), ready, lands(15006)),
	when("-o does not exempt the agent's inbound proof by IPv6", everything+"-o 15000:16000", bound(tcp(proxy, proofIn6), "::1"), ready, lands(15006)),
	when("-o does not exempt the agent's outbound proof", everything+"-o 15000:16000", proof(tcp(proxy, "192.0.2.4:15002")), ready, lands(15001)),
	when("-c does not exempt the agent's inbound proof", everything+"-c lo", tcp(proxy, proofIn), ready, lands(15006)),
	when("-c does not exempt the agent's outbound proof", everything+"-c eth0", proof(tcp(proxy, "192.0.2.5:15002")), ready, lands(15001)),
	when("-c does not exempt the agent's outbound proof by IPv6", everything+"-c eth0", proof(tcp(proxy, "[2001:db8::2]:15002")), ready, lands(15001)),
	when("-e does not exempt the agent's inbound proof", everything+"-e 15002", tcp(proxy, proofIn), ready, lands(15006)),
	when("the range of loopback does not exempt the agent's inbound proof", everything+"--outbound-ipv4-loopback-cidr 127.0.0.0/8", tcp(proxy, proofIn), ready, lands(15006)),
	when("-x does not exempt the agent's outbound proof", everything+"-x 192.0.0.0/8", proof(tcp(proxy, "192.0.2.6:15002")), ready, lands(15001)),
	when("-i does not exempt the agent's outbound proof", istio+"-i 10.0.0.0/8", proof(tcp(proxy, "192.0.2.7:15002")), ready, lands(15001)),
	when("groups do not exempt the agent's outbound proof", everything+"--outbound-owner-groups 2000", proof(tcp(proxy, "192.0.2.8:15002")), ready, lands(15001)),
	when("an excluded group does not exempt the agent's outbound proof", everything+"--outbound-owner-groups-exclude 1337", proof(tcp(proxy, "192.0.2.9:15002")), ready, lands(15001)),
	when("what the proxy passes on to the proof's port does not come in again", everything+"-o 15002", bound(tcp(proxy, proofIn), "127.0.0.6"), ready, refused(15002)),
	when("another call that -o exempts passes", everything+"-o 15000:16000", tcp(app, "10.96.0.10:15500"), ready, passes),
	when("with TPROXY the agent's inbound proof comes in", transparent, tcp(proxy, proofIn), ready, taken(15006)),
	when("with TPROXY -b does not exempt the agent's inbound proof", port8080, tcp(proxy, proofIn), ready, taken(15006)),
	when("with TPROXY -b does not exempt the agent's inbound proof by IPv6", port8080, bound(tcp(proxy, proofIn6), "::1"), ready, taken(15006)),
	when("with TPROXY -d does not exempt the agent's inbound proof", transparent+"-d 15002", tcp(proxy, proofIn), ready, taken(15006)),
	when("with TPROXY -c does not exempt the agent's inbound proof", transparent+"-c l+", tcp(proxy, proofIn), ready, taken(15006)),
	when("with TPROXY the range of loopback does not exempt the agent's inbound proof", transparent+"--outbound-ipv4-loopback-cidr 127.0.0.0/8", tcp(proxy, proofIn), ready, taken(15006)),
	when("with TPROXY the agent's inbound proof waits for a proxy", port8080, tcp(proxy, proofIn), early, waits(15002)),
	when("with TPROXY and -c lo the proxy calls the pod's own address directly", transparent+"-c lo", tcp(proxy, own), ready, passes),
	when("with TPROXY and a prefix of lo the proxy calls the pod's own address directly", transparent+"-c l+", tcp(proxy, own), ready, passes),
	when("with TPROXY the inbound proof ends at the app's port", transparent, marked(tcp(root, own), capture.ProofIn), ready, refused(8080)),
	when("with TPROXY the outbound proof ends at the outbound port", transparent, marked(tcp(root, service), capture.ProofOut), ready, refused(15001)),
}
