// Package attack runs hostile callers against the real commands, with the memory limit that
// they have in the chart, and measures the effect on an ordinary client.
//
//	make attack                                             every case, the long form (root)
//	go test ./test/attack                                   the short form of one case of each kind, as in make test
//	OUTRIDER_NIGHTLY=1 go test ./test/attack                the short form of every case
//	go test ./test/attack -v -long -run 'TestAttack/review' some cases, the long form
//
// Each case has an outriderd of its own in a network namespace; the attacker is a process
// in a second namespace, and the ordinary client is in a third. The suite asserts what does not
// depend on time: no request of the ordinary client fails, the process stays within its limit, and
// nothing of the attack is retained after the attacker has left. It only prints latencies.
//
// A real attacker has processors of its own. Here it gets one processor at most, with a tenth of the
// weight (nice 10) of outriderd and the ordinary client. So the ordinary client waits for outriderd's
// work on the attack, not for the attacker's own work. The processor time of both is printed: if the
// attacker got almost none, the row says little. The attacker has an address for each caller that it
// plays, any of 10.250.0.0/16.
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
// attack runs in the attacker's process and namespace, so that net.Dial connects from there;
// it knows nothing of the test but the victim. It keeps up the load until ctx ends,
// which is after 15 ordinary requests and 0.7 s in the short form, 500 and 20 s in the
// long one, and bounds what it opens: repeat does both. A refused request is no error of the attacker;
// an error means that the attack could not be made, and fails the test. To see the effect of one case
// alone:
//
//	OUTRIDER_NIGHTLY=1 go test ./test/attack -v -run 'TestAttack/reviews:_100'
package attack
