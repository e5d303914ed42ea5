// Package attack runs hostile callers against the real commands, with the memory limit that
// they have in the chart, and measures what an ordinary client notices meanwhile.
//
//	make attack                                             every case, the long form (root)
//	go test ./test/attack                                   the short form of one case of each kind, as in make test
//	OUTRIDER_NIGHTLY=1 go test ./test/attack                the short form of every case
//	go test ./test/attack -v -long -run 'TestAttack/review' some cases, the long form
//
// Each case has an outriderd of its own, in a network namespace; the attacker is a process
// in a second namespace, the ordinary client is in a third one. What does not depend on time is
// asserted: no request of the ordinary client fails, the process stays within its limit, and
// nothing of the attack is kept when the attacker has left. Latencies are printed.
//
// A real attacker computes on a machine of its own. Here it has one processor at most, with a
// weight of a tenth (nice 10) beside outriderd and the ordinary client, so that what the ordinary
// client waits for is outriderd's work for the attacker and not the attacker's own. The processor
// time of both is printed: an attacker with almost none had no processor, and the row says little.
// It has an address for each caller that it plays, any of 10.250.0.0/16.
//
// # To add a case
//
// The cases of one part of the surface are a slice in a file of its own: reviews_test.go,
// certificates_test.go, connections_test.go, streams_test.go, statusports_test.go, identities_test.go,
// floods_test.go. A new file
// adds its slice to all() in suite_test.go.
// A case is
//
//	{
//		name:     "reviews: 100 containers, a complete graph", // a sentence without a slash
//		ordinary: review,                                      // who is measured meanwhile
//		attack: func(ctx context.Context, v victim) (did string, err error) {
//			return repeat(ctx, 8, func(ctx context.Context, worker int) error { ... })
//		},
//	}
//
// attack runs in the attacker's process and namespace, so that net.Dial connects from there;
// its only knowledge of the test is the victim. It keeps its pressure up until ctx ends,
// which is after 15 ordinary requests and 0.7 s in the short form, 500 and 20 s in the
// long one, and bounds what it opens: repeat does both. That a request is refused is no error of the attacker; an error means that
// the attack could not be made, and fails the test. To see one case's effect alone:
//
//	OUTRIDER_NIGHTLY=1 go test ./test/attack -v -run 'TestAttack/reviews:_100'
package attack
