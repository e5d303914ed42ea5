package lookup

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"outrider.dev/test/registry"
)

func TestASlowRegistry(t *testing.T) {
	r := registry.New(t)
	end := make(chan struct{})
	t.Cleanup(func() { close(end) }) // cleanups run in reverse order: this one runs before the server waits for its requests
	r.Before = func(_ http.ResponseWriter, req *http.Request) bool {
		select {
		case <-end:
		case <-req.Context().Done():
		}
		return true
	}
	_, err := resolver(t, r, Options{Timeout: 20 * time.Millisecond}).Command(t.Context(), r.Host+"/shop:1")
	if err == nil || !strings.HasSuffix(err.Error(), "its registry has not answered within 20ms") {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // time limit: it must expire
	defer cancel()
	_, err = resolver(t, r, Options{}).Command(ctx, r.Host+"/shop:1")
	if err == nil || !strings.HasSuffix(err.Error(), "its registry has not answered in time") {
		t.Error(err)
	}
}

// Results are cached: a minute for a tag, forever for a digest, and half a minute for a temporary failure.
func TestCache(t *testing.T) {
	r := registry.New(t)
	one := r.Index(r.Image("linux/amd64", shop))
	r.Tag("shop", "1", one.Digest)
	// The handler is called without a connection, so that the clock of the synctest bubble applies.
	transport := roundTrip(func(req *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		res := w.Result()
		res.Request = req
		return res, nil
	})
	synctest.Test(t, func(t *testing.T) {
		x := resolver(t, r, Options{Transport: transport})
		lookUp := func(image, want string, requests ...string) {
			t.Helper()
			before := len(r.Requests())
			c, err := x.Command(t.Context(), r.Host+"/"+image)
			if got := fmt.Sprint(c.Entrypoint, err); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want ... %s", image, got, want)
			}
			if diff := cmp.Diff(requests, r.Requests()[before:], cmp.Transformer("kinds", kinds)); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", image, diff)
			}
		}
		lookUp("shop:1", "/entry.sh", "GET /v2/", "HEAD manifests", "GET manifests", "GET manifests", "GET blobs")
		lookUp("shop:1", "/entry.sh")
		lookUp("shop@"+one.Digest.String(), "/entry.sh")
		lookUp("shop:2", "404", "GET /v2/", "HEAD manifests")
		lookUp("shop:2", "404")
		time.Sleep(29 * time.Second)
		r.Tag("shop", "2", one.Digest)
		lookUp("shop:2", "404")
		time.Sleep(time.Second)
		lookUp("shop:2", "/entry.sh", "GET /v2/", "HEAD manifests")
		time.Sleep(29 * time.Second)
		lookUp("shop:1", "/entry.sh")
		time.Sleep(time.Second)
		lookUp("shop:1", "/entry.sh", "GET /v2/", "HEAD manifests")
		r.Tag("shop", "1", r.Image("linux/amd64", v1.ImageConfig{Entrypoint: []string{"/moved"}}).Digest)
		lookUp("shop:1", "/entry.sh")
		time.Sleep(time.Minute)
		lookUp("shop:1", "/moved", "GET /v2/", "HEAD manifests", "GET manifests", "GET blobs")
		time.Sleep(1000 * time.Hour)
		lookUp("shop@"+one.Digest.String(), "/entry.sh")
		// A permanent failure is cached forever.
		bad := r.Put(v1.MediaTypeImageManifest, []byte(`{}`))
		lookUp("shop@"+bad.Digest.String(), "neither an index", "GET /v2/", "GET manifests")
		time.Sleep(time.Hour)
		lookUp("shop@"+bad.Digest.String(), "neither an index")
	})
}

// kinds returns the kinds of requests, without the names in them.
func kinds(requests []string) []string {
	var out []string
	for _, r := range requests {
		method, path, _ := strings.Cut(r, " ")
		for _, kind := range []string{"manifests", "blobs"} {
			if strings.Contains(path, kind) {
				path = kind
			}
		}
		out = append(out, method+" "+path)
	}
	return out
}

// Concurrent look-ups of the same image share one result.
func TestConcurrentLookups(t *testing.T) {
	r := registry.New(t)
	r.Tag("shop", "1", r.Image("linux/amd64", shop).Digest)
	begun, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.Before = func(http.ResponseWriter, *http.Request) bool {
		once.Do(func() { close(begun); <-goOn })
		return false
	}
	x := resolver(t, r, Options{})
	impatient, leave := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { x.Command(impatient, r.Host+"/shop:1") })
	<-begun
	leave() // the first caller stops waiting; the others do not
	images := slices.Repeat([]string{r.Host + "/shop:1"}, 20)
	wait.Go(func() {
		for image, c := range x.Commands(t.Context(), images) {
			if c.Why != "" || len(c.Entrypoint) == 0 {
				t.Errorf("%s: %+v", image, c)
			}
		}
	})
	close(goOn)
	wait.Wait()
	if got := kinds(r.Requests()); !slices.Equal(got, []string{"GET /v2/", "HEAD manifests", "GET manifests", "GET blobs"}) {
		t.Errorf("requests: %q", got)
	}
	if c := x.Counters(); c.Lookups != 1 || c.Failed != 0 {
		t.Errorf("%+v", c)
	}
}

func TestCacheIsBounded(t *testing.T) {
	r := registry.New(t)
	x := resolver(t, r, Options{Entries: 8})
	for i := range 100 {
		x.Command(t.Context(), fmt.Sprintf("%s/shop:%d", r.Host, i))
		if len(x.cache) > 8 {
			t.Fatalf("%d answers are cached", len(x.cache))
		}
	}
	if c := x.Counters(); c.Lookups != 100 || c.Failed != 100 {
		t.Errorf("%+v", c)
	}
}
