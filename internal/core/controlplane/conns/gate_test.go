package conns

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
)

func ip(last byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, last}) }

// If one address has many waiting requests, a request of another address waits for only one of them. The same
// holds for the names of one address.
func TestTurns(t *testing.T) {
	for name, tt := range map[string]struct {
		all     int64
		waiting string // the address and the name of each request, in the order of their arrival
		want    string
	}{
		"of addresses":           {1, "1a 1a 1a 1a 1a 2a 2a 3a", "1a 2a 3a 1a 2a 1a 1a 1a"},
		"of names of an address": {2, "1a 1a 1a 1b 1a 1b 1c", "1a 1b 1c 1a 1b 1a 1a"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewGate(tt.all, 1)
				first, err := g.EnterFor(t.Context(), ip('1'), "a", 1)
				if err != nil {
					t.Fatal(err)
				}
				var order []string
				for _, request := range strings.Fields(tt.waiting) {
					go func() {
						leave, err := g.EnterFor(t.Context(), ip(request[0]), request[1:], 1)
						if err != nil {
							t.Error(err)
							return
						}
						order = append(order, request)
						leave()
					}()
					synctest.Wait()
				}
				if all := len(strings.Fields(tt.waiting)); tt.all == 1 && len(order) > 0 || len(order) == all {
					t.Errorf("%q have their turns while the gate is taken", order)
				}
				first()
				synctest.Wait()
				if got := strings.Join(order, " "); got != tt.want || len(g.waiting) > 0 || len(g.has) > 0 {
					t.Errorf("turns of %s, want %s; left: %v, %v", got, tt.want, g.waiting, g.has)
				}
			})
		})
	}
}

// An address that holds its whole share does not delay other addresses.
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
		enter(ctx, 1, 4) // with the first four it is more than the share
		enter(t.Context(), 2, 5)
		if granted != 2 {
			t.Fatalf("%d are granted, want the first of each address", granted)
		}
		cancel() // the second request of the first address no longer waits
		synctest.Wait()
		four()
		if enter(t.Context(), 1, 5); granted != 3 || g.free != 0 || len(g.waiting) != 0 || g.turns.Len() != 0 {
			t.Errorf("%d are granted, %+v", granted, g)
		}
	})
}

// FuzzGate checks that in any order of requests the gate grants at most all its units, and that in the end
// all are free.
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
