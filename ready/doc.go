// Package ready lets an application wait at its start for the sidecar and for its dependencies.
//
//	func main() {
//		if err := ready.Wait(context.Background(), ready.Proxy(), ready.On("tcp://db:5432")); err != nil {
//			log.Fatal(err)
//		}
//		...
//	}
//
// The common loop "try every second for one minute, then continue" becomes
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
//	                            a condition: healthy. This container needs a gate of Outrider.
//
// [Check] waits until a function succeeds, for example the Ping of a database.
//
// Behind a proxy an accepted connection proves little, because the proxy accepts it before it connects to the
// dependency. So if connections of the pod are captured, tcp:// also requires that the connection stays open for
// a tenth of a second: if the dependency refuses the proxy's connection, the proxy closes the connection within
// this time. This does not detect a dependency that does not answer the proxy at all. For that, use http://,
// grpc:// or Check, which need an answer of the dependency itself.
//
// # How it waits
//
// All conditions are checked at once and in parallel. Outrider's agent holds a request, and answers as soon as
// the proxy is ready. Other conditions are checked again after a pause that doubles from 5 ms to 50 ms (in the
// pod) or to 1 s (elsewhere). Each pause is shortened by a random part, up to a half, so that pods which start
// together do not check together. Files and containers are also checked after each change of their directory. The
// first attempt may take one second; after each attempt without an answer the limit doubles, up to ten seconds.
//
// When all conditions have been met, those whose answer is older than a quarter of a second are checked again. So
// all of them hold when the wait ends.
//
// A wait ends with the first of these events:
//
//   - all conditions hold: nil;
//   - the time of [For] is over, by default a minute: an [*Error], or nil with [Continue];
//   - ctx ends, or the process gets SIGTERM or an interrupt: an [*Error], also with Continue.
//
// The application's own handlers of these signals receive them too. During the wait, a log line lists the missing
// conditions: after the first second, then when the list changes, and in growing intervals, at most once a
// second.
//
// # Outside a mesh
//
// The same program also runs in pods without a proxy and on a laptop. There Proxy does not wait, and a log line
// says so. The missing answer of an agent does not prove that there is no proxy, because the proxy may not listen
// yet. Without arguments, Proxy waits if one of these is true:
//
//   - the variable OUTRIDER_MESH names agents (below);
//   - an agent answers, at /outrider/own/agent.sock, localhost:15020, :15021 or :4191;
//   - DAPR_HTTP_PORT is set, as Dapr's injector does in each container;
//   - /outrider/own or /outrider/state/outrider-proxy exists, as in containers with a gate;
//   - this is a pod of Kubernetes with its own network, and the kernel tracks connections in it. The kernel
//     tracks connections only if there are rules that need it, and a mesh writes its rules before any application
//     starts. This can be detected without privileges (Linux: SO_ORIGINAL_DST of a connection to itself).
//
// None of these is true in a pod whose mesh captures nothing and whose proxy starts later than the application.
// The last one is also true in a pod without a mesh that has other rules, such as those of a VPN. For these
// cases, set OUTRIDER_MESH, which needs no change of the program. Its value is none, or the arguments of [Proxy],
// separated by commas: "istio", "outrider,dapr", "http://localhost:9902/ready". If Proxy has arguments, nothing
// is detected and the variable has no effect.
//
// # Versions
//
// The module has its own versions, with semantic versioning and tags ready/vX.Y.Z. Until v1.0.0 a new minor
// version may change the interface, and CHANGELOG.md says how to adapt; a patch version changes no behaviour that
// this documentation promises. From v1.0.0 on, only a new major version, which has another import path, may break
// a program. The fields of [Error] are part of the interface; texts of errors and lines of the log are not. The
// two latest releases of Go are supported. The package needs only the standard library.
package ready
