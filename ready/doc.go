// Package ready lets an application wait at its start for the sidecar and for its dependencies.
//
//	func main() {
//		if err := ready.Wait(context.Background(), ready.Proxy(), ready.On("tcp://db:5432")); err != nil {
//			log.Fatal(err)
//		}
//		...
//	}
//
// The common loop "try every second for one minute, then go on" becomes
//
//	ready.Wait(ctx, ready.Proxy(), ready.For(time.Minute), ready.Continue)
//
// # What it waits for
//
// [Proxy] waits for the sidecar of a mesh: Outrider, Istio, Linkerd or Dapr. [On] waits for dependencies, given by
// their addresses:
//
//	tcp://HOST:PORT             a connection is accepted
//	http://HOST[:PORT][/PATH]   GET is answered with a status from 200 to 399; https:// too
//	grpc://HOST:PORT[/SERVICE]  gRPC's health service answers SERVING; without TLS
//	unix:///PATH                a connection to the socket is accepted
//	file:///PATH                the file exists
//	CONTAINER [is CONDITION]    a container of this pod is started, healthy or completed; without
//	                            a condition: healthy. This container needs a gate of Outrider's.
//
// [Check] waits for anything else, as a function, for example the Ping of a database.
//
// Behind a proxy an accepted connection proves little, because the proxy accepts it before it connects to the
// dependency. So if connections of the pod are captured, tcp:// also waits a tenth of a second, in which the proxy
// closes the connection if the dependency refused the proxy's. This does not detect a dependency that does not answer
// the proxy at all: http://, grpc:// and Check ask the dependency itself.
//
// # How it waits
//
// All conditions are checked at once and in parallel. Outrider's agent holds the request and answers at the moment at
// which it is ready. Other conditions are checked again after a pause that doubles from 5 ms to 50 ms (in the pod) or
// to 1 s (elsewhere). A random part of the pause, up to a half, is left out, so that a thousand pods that start
// together do not ask together. Files and containers are also checked after each change of their directory. The first
// attempt may take a second, the next one two, and so on up to ten.
//
// When all conditions have held, those whose answer is older than a quarter of a second are checked once more, so that
// all of them hold at the moment at which the wait ends.
//
// A wait ends with the first of these events:
//
//   - all conditions hold: nil;
//   - the time of [For] is over, by default a minute: an [*Error], or nil with [Continue];
//   - ctx ends, or the process gets SIGTERM or an interrupt: an [*Error], also with Continue.
//
// The application's own handlers of these signals receive them too. During the wait, a line in the log says what is
// missing: after the first second, and then when that changes or as the wait gets longer, at most once a second.
//
// # Outside a mesh
//
// The same program runs in pods without a proxy and on a laptop. There Proxy has no effect, and a line in the log says
// so. A proxy that does not listen yet looks like no proxy, so silence alone decides nothing. Without arguments, Proxy
// waits if one of these is true:
//
//   - the variable OUTRIDER_MESH names agents (below);
//   - an agent answers, at /outrider/own/agent.sock, localhost:15020, :15021 or :4191;
//   - DAPR_HTTP_PORT is set, as Dapr's injector does in each container;
//   - /outrider/own or /outrider/state/outrider-proxy exists, as in containers with a gate;
//   - this is a pod of Kubernetes with its own network, and the kernel tracks connections in it. The kernel does so
//     only if there are rules that need it, and a mesh's rules are written before any application starts. No
//     privilege is needed to see it (Linux: SO_ORIGINAL_DST of a connection to itself).
//
// None of these is true in a pod whose mesh captures nothing and whose proxy starts later than the application. The
// last one is also true in a pod without a mesh that has rules of its own, such as a VPN's. For these cases
// OUTRIDER_MESH decides without a change of the program: its value is none, or the arguments of [Proxy], separated by
// commas: "istio", "outrider,dapr", "http://localhost:9902/ready". If Proxy has arguments, nothing is detected and the
// variable has no effect.
//
// # Versions
//
// The module has its own versions, by semantic versioning: tags ready/vX.Y.Z. Until v1.0.0 a new minor version may
// change the interface, and CHANGELOG.md says how to adapt; a patch version changes no behaviour that this
// documentation promises. From v1.0.0 on, only a new major version, which has another import path, may break a program.
// The fields of [Error] are part of the interface; texts of errors and lines of the log are not. The two latest
// releases of Go are supported. The package needs only the standard library.
package ready
