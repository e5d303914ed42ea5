// Package attack runs hostile callers against the real commands, with the memory limit that
// they have in the chart, and measures the effect on an ordinary client.
//
//	make attack                                             every case, the long form (needs root)
//	go test ./test/attack                                   the short form of one case of each kind, as in make test
//	OUTRIDER_NIGHTLY=1 go test ./test/attack                the short form of every case
//	go test ./test/attack -v -long -run 'TestAttack/review' some cases, the long form
//
// Each case has an outriderd of its own in a network namespace; the attacker is a process
// in a second namespace, and the ordinary client is in a third. The suite asserts what does not
// depend on time: no request of the ordinary client fails, outriderd stays within its memory limit, and
// it retains no memory or connection of the attack after the attacker has left. Latencies are only printed.
//
// A real attacker has processors of its own. Here it gets one processor at most, with a tenth of the
// weight (nice 10) of outriderd and the ordinary client. So the ordinary client waits for outriderd's
// work on the attack, not for the attacker's own work. The processor time of outriderd and of the attacker
// is printed: if the attacker got almost none, the result proves little. The attacker plays many callers, each with
// its own address from 10.250.0.0/16.
//
// # To add a case
//
// The cases for one part of the surface are a slice: see reviews_test.go, webhook_test.go,
// connections_test.go, streams_test.go, identities_test.go and floods_test.go. A new slice is added
// to all() in suite_test.go.
// A case looks like this:
//
//	{
//		name:     "reviews: 100 containers, a complete graph", // a sentence without a slash
//		ordinary: review,                                      // the client that is measured meanwhile
//		attack: func(ctx context.Context, v victim) (did string, err error) {
//			return repeat(ctx, 8, func(ctx context.Context, worker int) error { ... })
//		},
//	}
//
// The function attack runs in the attacker's process and namespace, so that net.Dial connects from there; of the test
// it knows only the victim. It must keep up the load until ctx ends, and must limit the number of its connections:
// repeat does both. In the short form ctx ends after 15 ordinary requests and 0.7 s, in the long form after 500 and
// 20 s. A refused request is not an error of attack; an error means that the attack was not possible, and fails the
// test. To see the effect of one case alone:
//
//	OUTRIDER_NIGHTLY=1 go test ./test/attack -v -run 'TestAttack/reviews:_100'
package attack
