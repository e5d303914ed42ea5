package webhook

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"outrider.dev/internal/image/lookup"
	"outrider.dev/internal/pod/inject"
	"outrider.dev/test/registry"
)

// A container without a command gets its image's, and the image is pinned. Each review asks
// the resolver, which caches by itself.
func TestImagesAreLookedUp(t *testing.T) {
	r := registry.New(t)
	tag := func(command string) string {
		d := r.Image("linux/amd64", v1.ImageConfig{Entrypoint: []string{command}}).Digest
		r.Tag("shop", "1", d)
		return d.String()
	}
	first := tag("/shop")
	lookups := 0
	w := New(Options{Namespaces: enabled, Commands: func(ctx context.Context, images []string) map[string]inject.ImageCommand {
		lookups++
		x, err := lookup.New(lookup.Options{Transport: r.Server.Client().Transport, Timeout: time.Minute}) // without a cache
		if err != nil {
			t.Error(err)
			return nil
		}
		return x.Commands(ctx, images)
	}})
	a := authority(t, t.TempDir())
	url, c := "https://"+serve(t, w, a, 0)+Path, client(t, a.RootsPEM())
	ask := func(image, want string) {
		t.Helper()
		object, err := json.Marshal(map[string]any{"metadata": map[string]any{"generateName": "shop-"},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": image}}}})
		if err != nil {
			t.Fatal(err)
		}
		got := post(t, c, url, reviewOf("u1", "shop", object))
		text := string(got.response.Patch) + strings.Join(got.response.Warnings, "\n")
		if !got.response.Allowed || !strings.Contains(text, want) {
			t.Errorf("%s: want %s in\n%s", image, want, text)
		}
	}
	shop := r.Host + "/shop:1"
	ask(shop, `"--","/shop"]`)
	ask(shop, shop+"@"+first)
	second := tag("/moved")
	ask(shop, shop+"@"+second)
	ask(r.Host+"/late:1", "outrider: app: its command is not known: image "+r.Host+"/late:1: "+r.Host+" answered 404 Not Found")
	r.Tag("late", "1", r.Image("linux/amd64", v1.ImageConfig{Cmd: []string{"/late"}}).Digest)
	ask(r.Host+"/late:1", `"--","/late"]`)
	if lookups != 5 {
		t.Errorf("%d look-ups for 5 reviews", lookups)
	}
	before := lookups
	if got := post(t, c, url, reviewOf("u2", "shop", podJSON(t, plain))); !got.response.Allowed || lookups != before {
		t.Error("a pod with a command is looked up")
	}
}

// A registry that does not answer costs a pod its gate and at most half of its time, and other
// pods nothing.
func TestASlowRegistryDelaysNoOtherPod(t *testing.T) {
	begun, end, left := make(chan struct{}), make(chan struct{}), atomic.Int64{}
	w := New(Options{Namespaces: enabled, Limits: Limits{Concurrency: 1}, Commands: func(ctx context.Context, images []string) map[string]inject.ImageCommand {
		deadline, _ := ctx.Deadline()
		left.Store(int64(time.Until(deadline)))
		close(begun)
		<-end
		return map[string]inject.ImageCommand{images[0]: {Why: "image shop: too slow"}}
	}})
	a := authority(t, t.TempDir())
	url, c := "https://"+serve(t, w, a, 0)+Path, client(t, a.RootsPEM())
	done := make(chan reply)
	go func() {
		done <- post(t, c, url+"?timeout=30s", reviewOf("u1", "shop", podJSON(t, `{spec: {containers: [{name: app, image: shop}]}}`)))
	}()
	<-begun
	if got := post(t, c, url, reviewOf("u2", "shop", podJSON(t, plain))); !got.response.Allowed || len(got.response.Patch) == 0 {
		t.Errorf("another pod: %+v", got.response)
	}
	close(end)
	got := <-done
	if !got.response.Allowed || len(got.response.Patch) == 0 || !strings.Contains(strings.Join(got.response.Warnings, "\n"), "image shop: too slow") {
		t.Errorf("the slow one: %+v", got.response)
	}
	if d := time.Duration(left.Load()); d <= 0 || d > 15*time.Second {
		t.Errorf("the look-up had %s of 30s", d)
	}
}
