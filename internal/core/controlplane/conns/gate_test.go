package conns

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
)

func ip(last byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, last}) }

// While one address has many requests waiting, another address is next: it waits for one turn, not for
// all of them.
func TestTurnsAreByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(1, 1)
		first, err := g.Enter(t.Context(), ip(1), 1)
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan byte, 40)
		wait := func(from byte) {
			go func() {
				leave, err := g.Enter(t.Context(), ip(from), 1)
				if err != nil {
					t.Error(err)
					return
				}
				order <- from
				leave()
			}()
			synctest.Wait()
		}
		for range 30 {
			wait(1)
		}
		wait(2)
		wait(2)
		wait(3)
		first()
		synctest.Wait()
		var got []byte
		for range 5 {
			got = append(got, <-order)
		}
		if want := string([]byte{1, 2, 3, 1, 2}); string(got) != want {
			t.Errorf("the first turns are of %v, want %v", got, []byte(want))
		}
	})
}

// Among requests of one address, those for another namespace wait for one turn, not for all.
func TestTurnsOfAnAddressAreByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(2, 1)
		first, err := g.EnterFor(t.Context(), ip(1), "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, name := range []string{"a", "a", "a", "b", "a", "b", "c"} {
			go func() {
				leave, err := g.EnterFor(t.Context(), ip(1), name, 1)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, name)
				leave()
			}()
			synctest.Wait()
		}
		first()
		synctest.Wait()
		if got, want := strings.Join(order, ""), "abcabaa"; got != want || len(g.waiting) > 0 || len(g.has) > 0 {
			t.Errorf("turns of %s, want %s; left: %v, %v", got, want, g.waiting, g.has)
		}
	})
}

// An address that holds its whole share delays no other address.
func TestAnAddressHasItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(10, 5)
		granted := 0
		enter := func(ctx context.Context, from byte, n int64) (leave func()) {
			go func() {
				l, err := g.Enter(ctx, ip(from), n)
				if err == nil {
					granted, leave = granted+1, l
				}
			}()
			synctest.Wait()
			return leave
		}
		four := enter(t.Context(), 1, 4)
		ctx, cancel := context.WithCancel(t.Context())
		enter(ctx, 1, 4) // more than the share
		enter(t.Context(), 2, 5)
		if granted != 2 {
			t.Fatalf("%d are granted, want the first of each address", granted)
		}
		cancel() // it stops waiting
		synctest.Wait()
		four()
		if enter(t.Context(), 1, 5); granted != 3 || g.free != 0 || len(g.waiting) != 0 || g.turns.Len() != 0 {
			t.Errorf("%d are granted, %+v", granted, g)
		}
	})
}

// FuzzGate: in any order of requests, no more is granted than the gate has, and in the end all of it is
// free.
func FuzzGate(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 5, 6, 255, 1, 1, 1})
	f.Fuzz(func(t *testing.T, steps []byte) {
		synctest.Test(t, func(t *testing.T) {
			g := NewGate(8, 4)
			var ends []func()
			for _, step := range steps[:min(len(steps), 100)] {
				if step >= 128 && len(ends) > 0 {
					i := int(step) % len(ends)
					ends[i]()
					ends = append(ends[:i], ends[i+1:]...)
				} else {
					ctx, cancel := context.WithCancel(context.Background())
					ends = append(ends, cancel)
					go func() {
						if leave, err := g.Enter(ctx, ip(step%3), int64(1+step%4)); err == nil {
							<-ctx.Done()
							leave()
						}
					}()
				}
				synctest.Wait()
				g.mu.Lock()
				sum := g.free
				for _, n := range g.has {
					if sum += n; n > g.share {
						t.Errorf("an address has %d", n)
					}
				}
				if sum != 8 || g.free < 0 {
					t.Errorf("%d of 8 are there, %d free", sum, g.free)
				}
				g.mu.Unlock()
			}
			for _, end := range ends {
				end()
			}
			synctest.Wait()
			if g.free != 8 || len(g.has)+len(g.waiting)+g.turns.Len() != 0 {
				t.Errorf("left: %+v", g)
			}
		})
	})
}
