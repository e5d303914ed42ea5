package scenario

// istio lists the arguments that the injector passes to the init container, except -i and -b.
const istio = "-p 15001 -z 15006 -u 1337 -m REDIRECT -x= -d 15090,15020 "

// everything is the injector's default.
const everything = istio + "-i * -b * "

var outbound = []Scenario{
	when("a process of the app that calls a service lands on the outbound port", everything, tcp(app, service), ready, lands(15001)),
	when("a process of the app that calls a service by IPv6 lands on the outbound port", everything, tcp(app, service6), ready, lands(15001)),
	when("a process of root that calls a service lands on the outbound port", everything, tcp(root, service), ready, lands(15001)),
	when("a process of another user that calls a service lands on the outbound port", everything, tcp(other, service), ready, lands(15001)),
	when("the app's calls to a guest's network land on the outbound port", everything, tcp(app, guestWeb), ready, lands(15001)),
	when("the proxy's calls to a service leave the pod", everything, tcp(proxy, service), ready, passes),
	when("the proxy's calls to a service by IPv6 leave the pod", everything, tcp(proxy, service6), ready, passes),
	when("UDP that is no query is not captured", everything, udp(app, service9k), ready, passes),
	when("a connection older than the rules goes on", everything, older(tcp(app, service)), ready, passes),
	when("a connection older than the rules within the pod goes on", everything, older(tcp(proxy, own)), ready, passes),

	when("the app calls 127.0.0.1 directly", everything, tcp(app, loop), ready, passes),
	when("the app calls ::1 directly", everything, tcp(app, loop6), ready, passes),
	when("the app calls another loopback address directly", everything, tcp(app, loopOther), ready, passes),
	when("the app calls the pod's own address directly", everything, tcp(app, own), ready, passes),
	when("the app calls the pod's own IPv6 address directly", everything, tcp(app, own6), ready, passes),
	when("the app calls another of the pod's own addresses directly", everything, tcp(app, "10.10.0.2:8080"), ready, passes),
	when("UDP within the pod is left alone", everything, udp(app, "127.0.0.1:9053"), ready, passes),

	when("the proxy that calls the pod's own address comes in through the inbound side", everything, tcp(proxy, own), ready, lands(15006)),
	when("the proxy that calls the pod's own IPv6 address comes in through the inbound side", everything, tcp(proxy, own6), ready, lands(15006)),
	when("the pod's own address leads through the inbound side though no inbound port is captured", istio+"-i *", tcp(proxy, own), ready, lands(15006)),
	when("the pod's own address leads through the inbound side though its port is excluded inbound", everything+"-d 8080", tcp(proxy, own), ready, lands(15006)),
	when("the proxy calls 127.0.0.1 directly", everything, tcp(proxy, loop), ready, passes),
	when("the proxy calls ::1 directly", everything, tcp(proxy, loop6), ready, passes),
	when("the proxy calls the tunnel port of its own pod directly", everything, tcp(proxy, "10.9.0.2:15008"), ready, passes),
	when("another tunnel port of the own pod is direct", everything+"-e 15009", tcp(proxy, "10.9.0.2:15009"), with(ready, on(15009)), passes),
	when("with another tunnel port 15008 of the own pod is captured", everything+"-e 15009", tcp(proxy, "10.9.0.2:15008"), ready, lands(15006)),
	when("the agent calls a status port at the pod's own address directly", everything, tcp(proxy, "10.9.0.2:15020"), ready, passes),
	when("what the proxy passes on from 127.0.0.6 reaches the app", everything, bound(tcp(proxy, own), "127.0.0.6"), ready, passes),
	when("what the proxy passes on from ::6 reaches the app", everything, bound(tcp(proxy, own6), "::6"), ready, passes),
	when("127.0.0.7 is not where the proxy passes on from", everything, bound(tcp(proxy, own), "127.0.0.7"), ready, lands(15006)),

	when("port 9000 is left alone when it is excluded outbound", everything+"-o 9000", tcp(app, service9k), ready, passes),
	when("port 9000 is left alone by IPv6 too when it is excluded outbound", everything+"-o 9000", tcp(app, service9k6), ready, passes),
	when("port 80 is captured when 9000 is excluded outbound", everything+"-o 9000", tcp(app, service), ready, lands(15001)),
	when("every port of a list is excluded outbound", everything+"-o 9000,80", tcp(app, service), ready, passes),
	when("an outbound port both excluded and listed is left alone", istio+"-q 9000 -o 9000", tcp(app, service9k), ready, passes),
	when("an excluded outbound port counts before the pod's calls to itself", everything+"-o 8080", tcp(proxy, own), ready, passes),

	when("nothing leaves by the proxy through an excluded interface", everything+"-c eth0", tcp(app, service), ready, passes),
	when("nothing leaves by the proxy through an excluded interface with IPv6", everything+"-c eth0", tcp(app, service6), ready, passes),
	when("a prefix excludes every interface that begins so", everything+"-c et+", tcp(app, service), ready, passes),
	when("a prefix excludes no other interface", everything+"-c vir+", tcp(app, service), ready, lands(15001)),
	when("a prefix excludes a guest's interface", everything+"-c vir+", tcp(app, guestWeb), ready, passes),
	when("the second of two excluded interfaces is excluded", everything+"-c eth7,virt0", tcp(app, guestWeb), ready, passes),
	when("an excluded interface leaves the others captured", everything+"-c virt0", tcp(app, service), ready, lands(15001)),
	when("excluded loopback ends the pod's calls to itself through the proxy", everything+"-c lo", tcp(proxy, own), ready, passes),
	when("a prefix of lo ends the pod's calls to itself through the proxy", everything+"-c l+", tcp(proxy, own), ready, passes),

	when("-p names the outbound port", everything+"-p 16001", tcp(app, service), with(ready, on(16001)), lands(16001)),
	when("-z does not change the outbound port", everything+"-z 16006", tcp(app, service), ready, lands(15001)),
	when("-z names the port of the pod's calls to itself", everything+"-z 16006", tcp(proxy, own), with(ready, on(16006)), lands(16006)),
	when("with mode NONE nothing outbound is captured", everything+"-m NONE", tcp(app, service), ready, passes),
	when("with mode NONE the proxy calls the pod's own address directly", everything+"-m NONE", tcp(proxy, own), ready, passes),
}

var ranges = []Scenario{
	when("without -i and -q nothing outbound is captured", istio+"-b *", tcp(app, service), ready, passes),
	when("an empty -i captures nothing outbound", istio+"-i= -b *", tcp(app, service6), ready, passes),
	when("an address within -i is captured", istio+"-i 10.96.0.0/12", tcp(app, service), ready, lands(15001)),
	when("an address outside -i is left alone", istio+"-i 10.96.0.0/12", tcp(app, elsewhere), ready, passes),
	when("an address within the second range of -i is captured", istio+"-i 10.96.0.0/12,172.16.0.0/12", tcp(app, elsewhere), ready, lands(15001)),
	when("a bare address is a range of one", istio+"-i 10.96.0.10", tcp(app, service), ready, lands(15001)),
	when("an IPv4 range leaves IPv6 alone", istio+"-i 10.96.0.0/12", tcp(app, service6), ready, passes),
	when("an address within an IPv6 range of -i is captured", istio+"-i 10.96.0.0/12,fd96::/16", tcp(app, service6), ready, lands(15001)),
	when("an address outside an IPv6 range of -i is left alone", istio+"-i fd97::/16", tcp(app, service6), ready, passes),
	when("UDP within -i is left alone", istio+"-i 10.96.0.0/12", udp(app, service9k), ready, passes),

	when("a loopback range in -i captures what the app calls there", istio+"-i 127.0.0.0/8", tcp(app, loopOther), ready, lands(15001)),
	when("127.0.0.1 stays in the pod though a loopback range is in -i", istio+"-i 127.0.0.0/8", tcp(app, loop), ready, passes),
	when("::1 stays in the pod though it is in -i", istio+"-i ::1/128,127.0.0.0/8", tcp(app, loop6), ready, passes),
	when("with a loopback range in -i the pod's own address is captured if it is in a range", istio+"-i 127.0.0.0/8,10.9.0.0/16", tcp(app, own), ready, lands(15001)),
	when("with a loopback range in -i the pod's own address is direct if it is in no range", istio+"-i 127.0.0.0/8", tcp(app, own), ready, passes),
	when("'*' does not capture loopback addresses", istio+"-i *", tcp(app, loopOther), ready, passes),
	when("a loopback address other than 127.0.0.1 is the pod's own for the proxy", everything, tcp(proxy, loopOther), ready, lands(15006)),
	when("a wider loopback range stays in the pod", istio+"-i 127.0.0.0/8 --outbound-ipv4-loopback-cidr 127.0.0.0/8", tcp(app, loopOther), ready, passes),
	when("a wider loopback range is direct for the proxy", everything+"--outbound-ipv4-loopback-cidr 127.0.0.0/8", tcp(proxy, loopOther), ready, passes),
	when("a wider loopback range leaves the pod's own address captured for the proxy", everything+"--outbound-ipv4-loopback-cidr 127.0.0.0/8", tcp(proxy, own), ready, lands(15006)),

	when("an address within -x is left alone", everything+"-x 172.16.0.0/12", tcp(app, elsewhere), ready, passes),
	when("an address outside -x is captured", everything+"-x 172.16.0.0/12", tcp(app, service), ready, lands(15001)),
	when("an address within an IPv6 range of -x is left alone", everything+"-x 172.16.0.0/12,fd96::/16", tcp(app, service6), ready, passes),
	when("an IPv4 range in -x leaves IPv6 captured", everything+"-x 0.0.0.0/0", tcp(app, service6), ready, lands(15001)),
	when("-x counts before -i", istio+"-i 10.0.0.0/8 -x 10.96.0.10/32", tcp(app, service), ready, passes),
	when("-x counts before -q", istio+"-q 80 -x 10.96.0.0/12", tcp(app, service), ready, passes),
	when("-x does not reach the pod's calls to itself", everything+"-x 10.9.0.0/16", tcp(proxy, own), ready, lands(15006)),

	when("a port of -q is captured whatever the address", istio+"-q 9000", tcp(app, service9k), ready, lands(15001)),
	when("a port of -q is captured by IPv6 too", istio+"-q 80,9000", tcp(app, service9k6), ready, lands(15001)),
	when("a port that is not in -q is left alone", istio+"-q 9000", tcp(app, service), ready, passes),
	when("a port of -q is captured outside the ranges of -i", istio+"-q 80 -i 10.96.0.0/12", tcp(app, elsewhere), ready, lands(15001)),
	when("the ranges of -i are captured with the ports of -q", istio+"-q 9000 -i 10.96.0.0/12", tcp(app, service), ready, lands(15001)),
	when("-q '*' captures every port", istio+"-q *", tcp(app, service), ready, lands(15001)),
	when("-q leaves the pod's own address alone", istio+"-q 8080", tcp(app, own), ready, passes),
	when("-q leaves the proxy alone", istio+"-q 80", tcp(proxy, service), ready, passes),
}
