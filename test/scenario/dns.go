package scenario

import (
	"net/netip"

	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/trace"
)

// Addresses of name servers: at service addresses of the peer, and in the pod.
const (
	server      = "10.96.0.10:53"
	server6     = "[fd96::10]:53"
	otherServer = "172.16.0.10:53"
	podServer   = "127.0.0.53:53"
	ownServer   = "10.9.0.2:53"

	captureDNS    = everything + "--redirect-dns "
	captureAllDNS = captureDNS + "--capture-all-dns "
)

// resolver is a pod in which a name server listens.
var resolver = with(ready, on(53), trace.Listener{Proto: capture.UDP, Port: 53})

// withServers returns s with these name servers in the pod's resolv.conf.
func withServers(s Scenario, servers ...string) Scenario {
	for _, addr := range servers {
		s.Nameservers = append(s.Nameservers, netip.MustParseAddrPort(addr).Addr())
	}
	return s
}

var dns = []Scenario{
	withServers(when("a query goes to the agent's resolver", captureDNS, udp(app, server), ready, lands(15053)), server, server6),
	withServers(when("a query over TCP goes to the agent's resolver", captureDNS, tcp(app, server), ready, lands(15053)), server, server6),
	withServers(when("a query by IPv6 goes to the agent's resolver", captureDNS, udp(app, server6), ready, lands(15053)), server, server6),
	withServers(when("a query by IPv6 over TCP goes to the agent's resolver", captureDNS, tcp(app, server6), ready, lands(15053)), server, server6),
	withServers(when("a query to another server leaves the pod", captureDNS, udp(app, otherServer), ready, passes), server),
	withServers(when("a query by IPv6 leaves the pod if only IPv4 servers are known", captureDNS, udp(app, server6), ready, passes), server),
	withServers(when("a query to another server over TCP is a call like any other", captureDNS, tcp(app, otherServer), ready, lands(15001)), server),
	withServers(when("a query is captured though nothing outbound is", istio+"--redirect-dns", udp(app, server), ready, lands(15053)), server),
	when("all queries go to the agent's resolver", captureAllDNS, udp(app, otherServer), ready, lands(15053)),
	when("all queries over TCP go to the agent's resolver", captureAllDNS, tcp(app, otherServer), ready, lands(15053)),
	when("all queries by IPv6 go to the agent's resolver", captureAllDNS, udp(app, server6), ready, lands(15053)),
	when("--capture-all-dns alone captures no query", everything+"--capture-all-dns", udp(app, server), ready, passes),
	when("without a known server queries leave the pod", captureDNS, udp(app, server), ready, passes),
	withServers(when("without --redirect-dns queries leave the pod", everything, udp(app, server), ready, passes), server),
	withServers(when("without --redirect-dns queries over TCP are calls like any other", everything, tcp(app, server), ready, lands(15001)), server),

	withServers(when("the agent's own queries leave the pod", captureDNS, udp(proxy, server), ready, passes), server),
	withServers(when("the agent's own queries over TCP leave the pod", captureDNS, tcp(proxy, server), ready, passes), server),
	when("the agent's own queries leave the pod when all are captured", captureAllDNS, udp(proxy, otherServer), ready, passes),
	when("the queries of the proxy's group leave the pod", captureAllDNS, udp(owner{1000, 1337}, server), ready, passes),
	withServers(when("a query to a server in the pod goes to the agent's resolver", captureDNS, udp(app, podServer), resolver, lands(15053)), podServer),
	withServers(when("a query over TCP to a server in the pod goes to the agent's resolver", captureDNS, tcp(app, podServer), resolver, lands(15053)), podServer),
	withServers(when("the agent queries a server in the pod", captureDNS, udp(proxy, podServer), resolver, passes), podServer),
	withServers(when("the agent queries a server in the pod over TCP", captureDNS, tcp(proxy, podServer), resolver, passes), podServer),
	withServers(when("the agent queries a server at the pod's own address over TCP", captureDNS, tcp(proxy, ownServer), resolver, passes), ownServer),
	when("a query to 127.0.0.1 goes to the agent's resolver when all do", captureAllDNS, udp(app, "127.0.0.1:53"), resolver, lands(15053)),
	withServers(when("a query to another server in the pod reaches it", captureDNS, udp(app, podServer), resolver, passes), server),
	withServers(when("with DNS captured the app calls the pod's own address directly", captureDNS, tcp(app, own), ready, passes), server),
	withServers(when("with DNS captured the app calls ::1 directly", captureDNS, tcp(app, loop6), ready, passes), server),
	withServers(when("with DNS captured UDP within the pod is left alone", captureDNS, udp(app, "127.0.0.1:9053"), ready, passes), server),
	withServers(when("with DNS captured UDP to a service is left alone", captureDNS, udp(app, service9k), ready, passes), server),
	withServers(when("with DNS captured calls land on the outbound port", captureDNS, tcp(app, service), ready, lands(15001)), server),
	withServers(when("with DNS captured the proxy that calls the pod's own address comes in through the inbound side", captureDNS, tcp(proxy, own), ready, lands(15006)), server),

	when("an excluded port 53 leaves queries alone", captureAllDNS+"-o 53", udp(app, server), ready, passes),
	when("an excluded port 53 leaves queries over TCP alone", captureAllDNS+"-o 53", tcp(app, server), ready, passes),
	when("an excluded range does not reach queries", captureAllDNS+"-x 10.96.0.0/12", udp(app, server), ready, lands(15053)),
	when("an excluded interface leaves queries alone", captureAllDNS+"-c eth0", udp(app, server), ready, passes),
	when("the queries of an excluded group leave the pod", captureAllDNS+"--outbound-owner-groups-exclude 2000", udp(other, server), ready, passes),
	when("the queries of a captured group are captured", captureAllDNS+"--outbound-owner-groups 2000", udp(other, server), ready, lands(15053)),
	when("a guest's queries are forwarded", captureAllDNS+"-k virt0", overUDP(fromGuest(server)), ready, passes),
	when("queries from outside are left alone", captureAllDNS, overUDP(fromPeer(ownServer)), resolver, passes),
	when("with TPROXY a query goes to the agent's resolver", captureAllDNS+"-m TPROXY", udp(app, server), ready, lands(15053)),
	when("with mode NONE queries leave the pod", captureAllDNS+"-m NONE", udp(app, server), ready, passes),

	when("a query waits for the agent's resolver", captureAllDNS, udp(app, server), early, waits(15053)),
	when("a query by IPv6 over TCP waits for the agent's resolver", captureAllDNS, tcp(app, server6), early, waits(15053)),
	when("a query gets no answer when parking is off", captureAllDNS+"--park=off", udp(app, server), early, dropped(15053)),
	when("a query over TCP is refused when parking is off", captureAllDNS+"--park=off", tcp(app, server), early, refused(15053)),
	when("with DNS not captured the resolver's port is not parked", everything, udp(app, "127.0.0.1:15053"), early, refused(15053)),
}
