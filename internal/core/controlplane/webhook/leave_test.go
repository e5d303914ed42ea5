package webhook

import (
	"bytes"
	"context"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/imagecmd"
)

// When a client disconnects, its review ends: injection stops at the next step, a look-up is cancelled, and
// the units of the gates for bytes and places are free again.
func TestAClientLeaves(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	planned := New(Options{Namespaces: enabled})
	planned.injectPod = func(_ *corev1.Pod, _ inject.Namespace, o inject.Options) (inject.Result, error) {
		leave()
		return inject.Result{}, o.Interrupted()
	}
	looked, looksUp := context.WithCancel(t.Context())
	lookup := New(Options{Namespaces: enabled, Commands: func(ctx context.Context, _ []string) map[string]imagecmd.Command {
		looksUp()
		<-ctx.Done()
		return nil
	}})
	for name, tt := range map[string]struct {
		w   *Webhook
		ctx context.Context
	}{"while the pod is planned": {planned, ctx}, "while images are looked up": {lookup, looked}} {
		out := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(tt.ctx, "POST", Path, bytes.NewReader(reviewOf("u1", "shop", podJSON(t, `{spec: {containers: [{name: app, image: shop}]}}`))))
		r.Header.Set("Content-Type", "application/json")
		tt.w.ServeHTTP(out, r)
		if out.Code != 504 {
			t.Errorf("%s: status %d, want 504: no review is sent", name, out.Code)
		}
		if w := tt.w; w.ordinary.bytes.Free() != ordinaryBytes || w.ordinary.places.Free() != int64(w.o.Limits.Concurrency) {
			t.Errorf("%s: bytes or places are still taken: %+v, %+v", name, w.ordinary.bytes, w.ordinary.places)
		}
	}
}
