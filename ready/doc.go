// Package ready lets an application wait, when it starts, for the sidecar and for what it depends on.
//
//	func main() {
//		if err := ready.Wait(context.Background(), ready.Proxy(), ready.On("tcp://db:5432")); err != nil {
//			log.Fatal(err)
//		}
//		...
//	}
//
// The habit "try every second for one minute, then go on" is
//
//	ready.Wait(ctx, ready.Proxy(), ready.For(time.Minute), ready.Continue)
//
// # What it waits for
//
// [Proxy] is the sidecar of a mesh: that of Outrider, Istio, Linkerd or Dapr. [On] is a list of
// dependencies by their addresses:
//
//	tcp://HOST:PORT             a connection is accepted
//	http://HOST[:PORT][/PATH]   GET is answered with a status from 200 to 399; https:// too
//	grpc://HOST:PORT[/SERVICE]  gRPC's health service answers SERVING; without TLS
//	unix:///PATH                a connection to the socket is accepted
//	file:///PATH                the file is there
//	CONTAINER [is CONDITION]    a container of this pod is started, healthy or completed; without
//	                            a condition: healthy. This container needs a gate of Outrider's.
//
// [Check] is anything else, as a function: the Ping of a database.
//
// Behind a proxy a connection proves little: the proxy accepts it, and connects then. So where
// connections of the pod are captured, tcp:// also waits a tenth of a second, in which the
// proxy closes the connection if the dependency refused its own. A dependency that does not answer the
// proxy at all is not noticed: http://, grpc:// and Check ask the dependency itself.
//
// # How it waits
//
// Everything is asked at once and at the same time. Outrider's agent holds the request and answers in the moment in
// which it is ready. Others are asked again after a pause that doubles from 5 ms to 50 ms (in the pod) or
// to 1 s (elsewhere), of which a random part of up to a half is left out, so that a thousand pods that start
// together do not ask together. Files and containers are looked at after each change of their directory too.
// An attempt may take a second, the next one two, and so on up to ten.
//
// When all have been there, those whose answer is older than a quarter of a second are asked once
// more, so that the wait ends in a moment in which everything is there.
//
// A wait ends with the first of these:
//
//   - everything is there: nil;
//   - the time of [For] is over, by default a minute: an [*Error], or nil with [Continue];
//   - ctx ends, or the process gets SIGTERM or an interrupt: an [*Error], also with Continue.
//
// The application's own handlers of these signals get them as well. While it waits, a line in the log says for
// what, after the first second and then when that changes or as the wait gets longer, at most one a second.
//
// # Outside a mesh
//
// The same program runs in pods without a proxy and on a laptop: there Proxy is no condition, and a line
// in the log says so. A proxy that does not listen yet looks like none, so silence decides nothing. Proxy() waits if one of
// these holds:
//
//   - the variable OUTRIDER_MESH names agents (below);
//   - an agent answers, at /outrider/own/agent.sock, localhost:15020, :15021 or :4191;
//   - DAPR_HTTP_PORT is set, as Dapr's injector does in each container;
//   - /outrider/own or /outrider/state/outrider-proxy is there, as in containers with a gate;
//   - this is a pod of Kubernetes with a network of its own, and the kernel tracks connections in it. It does so
//     only where there are rules that need it, and a mesh's are written before any application starts. No
//     privilege is needed to see it (Linux: SO_ORIGINAL_DST of a connection to itself).
//
// A pod whose mesh captures nothing, and whose proxy starts later than the application, shows none of this. A pod
// with rules of its own (a VPN's) and no mesh shows the last. OUTRIDER_MESH decides for these, without a change of the
// program: none, or as the arguments of [Proxy], separated by commas: "istio", "outrider,dapr", "http://localhost:9902/ready".
// Arguments of Proxy leave nothing to find out, and the variable no effect.
//
// # Versions
//
// The module has versions of its own, by semantic versioning: tags ready/vX.Y.Z. Until v1.0.0 a new minor version may
// change the interface, and CHANGELOG.md says how; a patch version changes no behaviour that this documentation
// promises. From then on only a new major version, which has another import path, may break a program. Texts of errors and lines of the log are no
// part of the interface; the fields of [Error] are. The two latest releases of Go are supported. The package needs
// nothing but the standard library.
package ready
