package readiness

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEveryConditionHasItsWords(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Conditions() {
		r := rules[c]
		if r.name == "" || r.code == "" || r.hint == "" || r.level == "" || (r.begin == "") != r.assumed || seen[r.code] || seen[r.name] || r.name == r.code {
			t.Errorf("condition %d: %+v", c, r)
		}
		seen[r.code], seen[r.name] = true, true
	}
}

func TestABoardNamesWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		at := func(d time.Duration) time.Time { return began.Add(d) }
		b := New(Options{Conditions: []Condition{Certificate, Identity, Names, App}})
		time.Sleep(time.Second)
		b.Set(Names, false, "connection refused")
		b.Set(Listeners, false, "does not count here")
		want := Status{Level: Full, Since: began, Reasons: []Reason{
			{"certificate-missing", "no certificate yet", began, rules[Certificate].hint},
			{"dns-proxy-silent", "connection refused", began, rules[Names].hint},
			{"app-not-healthy", "the app's health is not known yet", began, rules[App].hint},
		}}
		if diff := cmp.Diff(want, b.Status(Full)); diff != "" {
			t.Errorf("at the start (-want +got):\n%s", diff)
		}
		b.Set(Certificate, true, "")
		b.Set(Names, true, "slow")
		want = Status{Ready: true, Level: Outbound, Since: at(time.Second), Notes: []Note{{"dns-proxy", "slow"}}}
		if diff := cmp.Diff(want, b.Status(Outbound)); diff != "" {
			t.Errorf("outbound does not depend on the app (-want +got):\n%s", diff)
		}
		time.Sleep(time.Second)
		b.Set(Identity, false, "not by this root")
		want = Status{Level: Outbound, Since: at(2 * time.Second), Notes: want.Notes, Reasons: []Reason{
			{"identity-refused", "not by this root", at(2 * time.Second), rules[Identity].hint}}}
		if diff := cmp.Diff(want, b.Status(Outbound)); diff != "" {
			t.Errorf("it goes back (-want +got):\n%s", diff)
		}
		if first, ok := b.First(Outbound); !ok || !first.Equal(at(time.Second)) {
			t.Errorf("first ready: %v, %v", first, ok)
		}
		if _, ok := b.First(Full); ok {
			t.Error("full was never reached")
		}
	})
}

func TestAWaiterIsReleasedByTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Conditions: []Condition{Envoy, App}})
		var wg sync.WaitGroup
		for _, l := range []Level{Outbound, Full} {
			wg.Go(func() {
				began := time.Now()
				want := map[Level]time.Duration{Outbound: time.Second, Full: 3 * time.Second}[l]
				s, err := b.Wait(t.Context(), l)
				if err != nil || !s.Ready || s.Level != l || time.Since(began) != want {
					t.Errorf("%s: %+v after %v, %v", l, s, time.Since(began), err)
				}
			})
		}
		synctest.Wait()
		if n := b.Waiting(); n != 2 {
			t.Errorf("%d wait", n)
		}
		time.Sleep(time.Second)
		b.Set(Envoy, true, "")
		synctest.Wait()
		b.Set(Envoy, false, "it died")
		time.Sleep(time.Second)
		b.Set(App, true, "")
		time.Sleep(time.Second)
		b.Set(Envoy, true, "")
		wg.Wait()
		if n := b.Waiting(); n != 0 {
			t.Errorf("%d wait still", n)
		}
		if s, err := b.Wait(t.Context(), Full); err != nil || !s.Ready {
			t.Errorf("one that comes later: %v, %v", s, err)
		}
	})
}

func TestAWaitThatEndsTooEarlyHasAReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Conditions: []Condition{Envoy, ControlPlane}})
		b.Set(Envoy, true, "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s, err := b.Wait(ctx, Outbound)
		if !errors.Is(err, context.DeadlineExceeded) || len(s.Reasons) != 1 || !strings.Contains(err.Error(), "no-control-plane: not connected") {
			t.Errorf("%v: %+v", err, s)
		}
		// Wait returns a ready status even if its context has ended.
		b.Set(ControlPlane, true, "")
		if _, err := b.Wait(ctx, Outbound); err != nil {
			t.Error(err)
		}
	})
}

func TestASubscriberGetsTheFirstAndTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Conditions: []Condition{Envoy}})
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for s := range b.Subscribe(ctx, Outbound) {
				got = append(got, s.String())
				time.Sleep(time.Second)
			}
		}()
		synctest.Wait()
		for _, m := range []string{"a", "b", "c"} {
			b.Set(Envoy, false, m)
		}
		time.Sleep(90 * time.Minute)
		b.Set(Envoy, true, "")
		synctest.Wait()
		cancel()
		<-done
		want := []string{"envoy-not-live: Envoy was not started yet", "envoy-not-live: c", "ready"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestChangesAreReportedOnce(t *testing.T) {
	var got []Change
	b := New(Options{Conditions: Conditions(), Changed: func(c Change) { c.At = time.Time{}; got = append(got, c) }})
	b.Set(Envoy, true, "")
	b.Set(Envoy, true, "")
	b.Set(Envoy, false, "gone")
	want := []Change{{Condition: Envoy, OK: true}, {Condition: Envoy, Message: "gone"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLevelsAreRead(t *testing.T) {
	for in, want := range map[string]Level{"": Outbound, "outbound": Outbound, "full": Full} {
		if got, err := ParseLevel(in); got != want || err != nil {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	if _, err := ParseLevel("FULL"); err == nil {
		t.Error("an unknown level is accepted")
	}
}

func TestKeepChecksUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{Conditions: []Condition{Names}})
		began, checks := time.Now(), 0
		Keep(t.Context(), b, Names, Rates{Until: time.Second}, func(ctx context.Context) (string, error) {
			if checks++; checks == 1 {
				<-ctx.Done() // the check hangs
				return "", context.Cause(ctx)
			}
			if checks < 4 {
				return "", errors.New("silent")
			}
			return "", nil
		})
		if d := time.Since(began); checks != 4 || d != 5*time.Second || !b.Status(Outbound).Ready {
			t.Errorf("checked %d times in %v: %v", checks, d, b.Status(Outbound))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		Keep(ctx, b, Names, Rates{Until: time.Second, After: 10 * time.Second}, func(context.Context) (string, error) {
			if checks++; checks == 7 {
				return "", errors.New("silent again")
			}
			return "", nil
		})
		if checks != 11 { // at 0, 10, 20 (bad), 21, 31, 41, 51
			t.Errorf("checked %d times", checks)
		}
	})
}
