package scenario

import (
	"outrider.dev/internal/core/capture"
	"outrider.dev/internal/core/capture/trace"
)

const transparent = "-m TPROXY -i * -b * "

// opaque is a pod whose proxy listens without IP_TRANSPARENT, that is, only for connections to the pod's addresses.
var opaque = with(early, on(15001), on(15006))

// caller returns c as the connection by which the proxy calls the app, with the address of the caller outside.
func caller(c trace.Conn, mark uint32) trace.Conn {
	src := peer
	if c.Dst.Addr().Is6() {
		src = peer6
	}
	return marked(bound(c, src), mark)
}

// taking returns c as a later packet of a connection that the proxy has accepted.
func taking(c trace.Conn) trace.Conn {
	c = older(c)
	c.ConnMark = 1339
	return c
}

var tproxy = []Scenario{
	when("with TPROXY a connection from outside is taken", transparent, fromPeer(own), ready, taken(15006)),
	when("with TPROXY a connection from outside by IPv6 is taken", transparent, fromPeer(own6), ready, taken(15006)),
	when("with TPROXY later packets of a taken connection follow it", transparent, taking(fromPeer(own)), ready, taken(15006)),
	when("with TPROXY a connection older than the rules goes on", transparent, older(fromPeer(own)), ready, passes),
	when("with TPROXY UDP from outside is left alone", transparent, overUDP(fromPeer("10.9.0.2:9053")), ready, passes),
	when("with TPROXY -z names the port that takes", transparent+"-z 16006", fromPeer(own),
		with(ready, trace.Listener{Proto: capture.TCP, Port: 16006, Transparent: true}), taken(16006)),
	when("with TPROXY an excluded port is left alone", transparent+"-d 8080", fromPeer(own), ready, passes),
	when("with TPROXY -d '*' leaves every port alone", transparent+"-d *", fromPeer(own6), ready, passes),
	when("with TPROXY the status port is left alone", transparent, fromPeer("10.9.0.2:15020"), ready, passes),
	when("with TPROXY the tunnel port is left alone", transparent, fromPeer("10.9.0.2:15008"), ready, passes),
	when("with TPROXY a port of -b is taken", "-m TPROXY -b 8080", fromPeer(own), ready, taken(15006)),
	when("with TPROXY a port that is not in -b is left alone", "-m TPROXY -b 8080", fromPeer("10.9.0.2:8081"), ready, passes),
	when("with TPROXY and without -b nothing inbound is taken", "-m TPROXY -i *", fromPeer(own), ready, passes),
	when("with TPROXY an excluded interface is left alone", transparent+"-c eth0", fromPeer(own), ready, passes),
	when("with TPROXY an excluded interface leaves the others taken", transparent+"-c virt0", fromPeer(own), ready, taken(15006)),
	when("a lower-case mode is the same mode", "-m tproxy -b *", fromPeer(own), ready, taken(15006)),

	when("with TPROXY the app's calls land on the outbound port", transparent, tcp(app, service), ready, lands(15001)),
	when("with TPROXY the app's calls by IPv6 land on the outbound port", transparent, tcp(app, service6), ready, lands(15001)),
	when("with TPROXY the proxy's calls leave the pod", transparent, tcp(proxy, service), ready, passes),
	when("with TPROXY the app calls 127.0.0.1 directly", transparent, tcp(app, loop), ready, passes),
	when("with TPROXY the app calls the pod's own address directly", transparent, tcp(app, own), ready, passes),
	when("with TPROXY the proxy that calls the pod's own address is taken by the inbound side", transparent, tcp(proxy, own), ready, taken(15006)),
	when("with TPROXY the proxy that calls the pod's own IPv6 address is taken by the inbound side", transparent, tcp(proxy, own6), ready, taken(15006)),
	when("with TPROXY the proxy's user alone that calls the pod's own address is taken by the inbound side", transparent, tcp(owner{1337, 1000}, own), ready, taken(15006)),
	when("with TPROXY the proxy's group alone that calls the pod's own address is taken by the inbound side", transparent, tcp(owner{1000, 1337}, own), ready, taken(15006)),
	when("with TPROXY the proxy calls 127.0.0.1 directly", transparent, tcp(proxy, loop), ready, passes),
	when("with TPROXY the proxy calls ::1 directly", transparent, tcp(proxy, loop6), ready, passes),
	when("with TPROXY the proxy calls the tunnel port of its own pod directly", transparent, tcp(proxy, "10.9.0.2:15008"), ready, passes),
	when("with TPROXY what the proxy passes on from 127.0.0.6 reaches the app", transparent, bound(tcp(proxy, own), "127.0.0.6"), ready, passes),
	when("with TPROXY what the proxy passes on from ::6 reaches the app", transparent, bound(tcp(proxy, own6), "::6"), ready, passes),
	when("with TPROXY the proxy reaches the app under the caller's address", transparent, caller(tcp(proxy, own), 1337), ready, passes),
	when("with TPROXY the proxy reaches the app under the caller's IPv6 address", transparent, caller(tcp(proxy, own6), 1337), ready, passes),
	when("-t names the mark of the proxy's calls to the app", transparent+"-t 0x600", caller(tcp(proxy, own), 0x600), ready, passes),

	when("with TPROXY a connection from outside waits for the proxy", transparent, fromPeer(own), early, waits(8080)),
	when("with TPROXY a connection from outside by IPv6 waits for the proxy", transparent, fromPeer(own6), early, waits(8080)),
	when("with TPROXY the app's calls wait for the proxy", transparent, tcp(app, service), early, waits(15001)),
	when("with TPROXY a proxy that is not transparent cannot take anything", transparent, fromPeer(own), opaque, waits(8080)),
	when("with TPROXY an excluded port does not wait", transparent+"-d 8080", fromPeer(own), early, passes),
	when("with TPROXY and parking off an early connection does not reach the app", transparent+"--park=off", fromPeer(own), early, refused(8080)).
		onIPTables(waits(8080)), // TPROXY in iptables drops packets without a listener
	when("with TPROXY a proxy that is gone for too long refuses", transparent, fromPeer(own), remembering(early, "gone-15006"), refused(8080)).
		onIPTables(waits(8080)),
	when("with TPROXY a proxy that is back takes connections at once", transparent, fromPeer(own), remembering(ready, "gone-15006"), taken(15006)),
	when("with TPROXY and no time limit a proxy that is gone is waited for", transparent+"--park-limit 0", fromPeer(own), early, waits(8080)),
	when("with TPROXY a taken connection passes when every port is parked", transparent+"--park-ports *", fromPeer("10.9.0.2:8083"), ready, taken(15006)),
	when("with TPROXY every port is parked for the proxy's calls too", transparent+"--park-ports *", caller(tcp(proxy, "10.9.0.2:8083"), 1337), ready, waits(8083)),
}
