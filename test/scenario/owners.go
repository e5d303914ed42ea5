package scenario

const (
	onlyApp     = everything + "--outbound-owner-groups 1000 "
	exceptOther = everything + "--outbound-owner-groups-exclude 2000 "
)

var owners = []Scenario{
	when("a process of the proxy's group alone is the proxy", everything, tcp(owner{1000, 1337}, service), ready, passes),
	when("a process of the proxy's user alone is the proxy", everything, tcp(owner{1337, 1000}, service), ready, passes),
	when("a process of the proxy's group that calls the pod's own address comes in through the inbound side", everything, tcp(owner{1000, 1337}, own), ready, lands(15006)),
	when("every user of -u is the proxy", everything+"-u 1337,2000", tcp(other, service), ready, passes),
	when("every user of -u comes in through the inbound side", everything+"-u 1337,2000", tcp(other, own), ready, lands(15006)),
	when("several users in -u leave the app captured", everything+"-u 1337,2000", tcp(app, service), ready, lands(15001)),
	when("another -u is the proxy", everything+"-u 2000", tcp(other, service), ready, passes),
	when("uid 1337 is captured under another -u", everything+"-u 2000", tcp(proxy, service), ready, lands(15001)),
	when("the numbers of -u are groups too without -g", everything+"-u 2000", tcp(owner{1000, 2000}, service), ready, passes),
	when("the numbers of -u are no groups with -g", everything+"-u 2000 -g 1337", tcp(owner{1000, 2000}, service), ready, lands(15001)),
	when("a group of -g is the proxy", everything+"-g 3000,2000", tcp(owner{1000, 2000}, service), ready, passes),
	when("-g leaves the user of -u the proxy", everything+"-g 2000", tcp(owner{1337, 1000}, service), ready, passes),
	when("an empty -u is the usual one", everything+"-u=", tcp(proxy, service), ready, passes),
	when("root can be the proxy", everything+"-u 0", tcp(root, service), ready, passes),

	when("a process of a captured group is captured", onlyApp, tcp(app, service), ready, lands(15001)),
	when("a process of a captured group is captured by IPv6", onlyApp, tcp(app, service6), ready, lands(15001)),
	when("a process of no captured group is left alone", onlyApp, tcp(other, service), ready, passes),
	when("root is left alone if its group is not captured", onlyApp, tcp(root, service), ready, passes),
	when("every group of a list is captured", everything+"--outbound-owner-groups 1000,2000", tcp(other, service), ready, lands(15001)),
	when("the group counts, not the user", onlyApp, tcp(owner{2000, 1000}, service), ready, lands(15001)),
	when("captured groups leave the proxy alone", everything+"--outbound-owner-groups 1337", tcp(proxy, service), ready, passes),
	when("captured groups leave the pod's calls to itself captured", onlyApp, tcp(proxy, own), ready, lands(15006)),
	when("an empty list of groups captures nothing", everything+"--outbound-owner-groups=", tcp(app, service), ready, passes),
	when("an excluded group is left alone", exceptOther, tcp(other, service), ready, passes),
	when("a group that is not excluded is captured", exceptOther, tcp(app, service), ready, lands(15001)),
	when("excluded groups count only when all are captured", onlyApp+"--outbound-owner-groups-exclude 1000", tcp(app, service), ready, lands(15001)),
	when("owner groups do not reach inbound connections", onlyApp, fromPeer(own), ready, lands(15006)),
}
