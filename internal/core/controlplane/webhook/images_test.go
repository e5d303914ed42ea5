package webhook

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outrider.dev/internal/core/pod/inject/imagecmd"
)

// For a container without a command, the command is taken from its image, and the image is pinned by its
// digest. If the look-up fails, the pod gets a warning.
func TestImagesAreLookedUp(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a1", 32)
	var lookups [][]string
	w := New(Options{Namespaces: enabled, Commands: func(_ context.Context, images []string) map[string]imagecmd.Command {
		lookups = append(lookups, images)
		return map[string]imagecmd.Command{"shop:1": {Entrypoint: []string{"/shop"}, Digest: digest}, "late:1": {Why: "image late:1: not there"}}
	}})
	for _, tt := range []struct{ containers, want string }{
		{"{name: app, image: 'shop:1'}", `"--","/shop"]`},
		{"{name: app, image: 'shop:1'}", "shop:1@" + digest},
		{"{name: app, image: 'late:1'}", "outrider: app: its command is not known: image late:1: not there"},
		{"{name: app, image: 'shop:1', command: [/app]}", `"--","/app"]`},
	} {
		got := reviewed(t, w, "shop", podJSON(t, "{metadata: {generateName: shop-}, spec: {containers: ["+tt.containers+"]}}"))
		if text := string(got.Patch) + strings.Join(got.Warnings, "\n"); !got.Allowed || !strings.Contains(text, tt.want) {
			t.Errorf("%s: want %s in\n%s", tt.containers, tt.want, text)
		}
	}
	// The webhook does not cache commands, because the resolver does.
	if want := [][]string{{"shop:1"}, {"shop:1"}, {"late:1"}}; !slices.EqualFunc(lookups, want, slices.Equal[[]string]) {
		t.Errorf("look-ups %q, want %q", lookups, want)
	}
}

// If a registry does not answer, the pod that needs its image gets no gate, and the look-up takes at most
// half of the review's time. Other pods are not delayed.
func TestASlowRegistryDelaysNoOtherPod(t *testing.T) {
	begun, end, left := make(chan struct{}), make(chan struct{}), atomic.Int64{}
	w := New(Options{Namespaces: enabled, Limits: Limits{Concurrency: 1, Timeout: 30 * time.Second}, Commands: func(ctx context.Context, images []string) map[string]imagecmd.Command {
		deadline, _ := ctx.Deadline()
		left.Store(int64(time.Until(deadline)))
		close(begun)
		<-end
		return map[string]imagecmd.Command{images[0]: {Why: "image shop: too slow"}}
	}})
	slow := make(chan reply, 1)
	go func() {
		slow <- handled(t, w, reviewOf("u1", "shop", []byte(`{"spec":{"containers":[{"name":"app","image":"shop"}]}}`)))
	}()
	<-begun
	if got := reviewed(t, w, "shop", podJSON(t, plain)); !got.Allowed || len(got.Patch) == 0 {
		t.Errorf("another pod: %+v", got)
	}
	close(end)
	got := (<-slow).response
	if !got.Allowed || len(got.Patch) == 0 || !strings.Contains(strings.Join(got.Warnings, "\n"), "image shop: too slow") {
		t.Errorf("the slow one: %+v", got)
	}
	if d := time.Duration(left.Load()); d <= 0 || d > 15*time.Second {
		t.Errorf("the look-up had %s of 30s", d)
	}
}
