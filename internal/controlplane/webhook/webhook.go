package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/pod/inject"
)

// Options of a webhook. The zero value of a field means its default.
type Options struct {
	Inject inject.Options // until [Webhook.Use]

	// Namespace is the control plane's own, default outrider-system: no pod of it is
	// ever changed, whatever its labels say.
	Namespace string

	// Namespaces says what a namespace's labels are. One that is not known has none
	// that are known. Default: none is known. It is called for each review.
	Namespaces func(name string) (inject.Namespace, bool)

	// Commands looks up what images run, for containers that do not say it themselves and
	// are to get a gate. It gets half of the time that is left. Default: nobody looks.
	Commands func(ctx context.Context, images []string) map[string]inject.ImageCommand

	Limits Limits
	Log    *slog.Logger // default: none
}

// Limits are what one client can cost. The zero value of a field means its default.
type Limits struct {
	MaxBody     int64         // default 3 MiB, as the API server's own for a request
	Concurrency int           // reviews that are worked on at a time; default four for each processor
	Timeout     time.Duration // the longest a review may take, its body included; default 30s, the API's most
	Memory      int           // bytes of answers that are remembered; default 8 MiB; negative: none
}

const ownNamespace = "outrider-system"

func (o Options) complete() Options {
	if o.Namespace == "" {
		o.Namespace = ownNamespace
	}
	if o.Namespaces == nil {
		o.Namespaces = func(string) (inject.Namespace, bool) { return inject.Namespace{}, false }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Limits.MaxBody <= 0 {
		o.Limits.MaxBody = 3 << 20
	}
	if o.Limits.Concurrency <= 0 {
		o.Limits.Concurrency = 4 * runtime.GOMAXPROCS(0)
	}
	if o.Limits.Timeout <= 0 {
		o.Limits.Timeout = 30 * time.Second
	}
	if o.Limits.Memory == 0 {
		o.Limits.Memory = 8 << 20
	}
	return o
}

// A Webhook is an [http.Handler] of AdmissionReviews. It may be used from many
// goroutines.
type Webhook struct {
	o        Options
	settings atomic.Pointer[settings]
	slots    chan struct{}
	counters counters

	remembered atomic.Uint64 // reviews answered as the replica before

	// inject is [inject.Pod], but in tests.
	inject func(*corev1.Pod, inject.Namespace, inject.Options) (inject.Result, error)
}

// settings are what answers depend on besides the question; what is remembered under
// some is forgotten with them.
type settings struct {
	options inject.Options
	unread  *paths
	memo    *memo
}

// New returns a webhook.
func New(o Options) *Webhook {
	o = o.complete()
	w := &Webhook{o: o, slots: make(chan struct{}, o.Limits.Concurrency), inject: inject.Pod}
	w.Use(o.Inject)
	return w
}

// Use injects by other options from the next review on.
func (w *Webhook) Use(o inject.Options) {
	w.settings.Store(&settings{o, unreadBy(o), newMemo(w.o.Limits.Memory)})
}

// A failure is a request that gets no AdmissionReview for an answer. The API server then
// does what failurePolicy says.
type failure struct {
	code   int
	reason metav1.StatusReason
	text   string
}

func (f *failure) Error() string { return f.text }

func fail(code int, reason metav1.StatusReason, format string, args ...any) error {
	return &failure{code, reason, fmt.Sprintf(format, args...)}
}

// ServeHTTP answers one review.
func (w *Webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	began := time.Now()
	buffer := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Cap() <= keptBuffer {
			buffer.Reset()
			buffers.Put(buffer)
		}
	}()
	answer, code, err := w.answer(rw, r, buffer, began)
	w.counters.add(code, time.Since(began))
	if err != nil {
		w.refuse(rw, err)
		return
	}
	send(rw, http.StatusOK, answer)
}

// buffers hold the bodies of requests, which are alike in size.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// keptBuffer is the most that a buffer keeps: one large pod must not stay in memory.
const keptBuffer = 256 << 10

// answer is a whole request, with whatever happens in it.
func (w *Webhook) answer(rw http.ResponseWriter, r *http.Request, buffer *bytes.Buffer, began time.Time) (answer []byte, code inject.Code, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.o.Log.Error("a review made the webhook panic", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			answer, code, err = nil, Failed, fail(http.StatusInternalServerError, metav1.StatusReasonInternalError,
				"the webhook failed at this pod, which is a mistake in it and not in the pod; outriderd's log says more")
		}
	}()
	environ, err := w.accept(r)
	if err != nil {
		return nil, Failed, err
	}
	timeout, err := timeoutOf(r, w.o.Limits.Timeout)
	if err != nil {
		return nil, Failed, err
	}
	if err := w.read(rw, r, buffer, began.Add(timeout)); err != nil {
		return nil, Failed, err
	}
	ctx, cancel := context.WithDeadline(r.Context(), began.Add(timeout))
	defer cancel()
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	case <-ctx.Done():
		return nil, Failed, fail(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
			"%d reviews are under way and none ended within %s: give outriderd more processors or replicas", cap(w.slots), timeout)
	}
	return w.review(ctx, buffer.Bytes(), r.URL.EscapedPath(), environ)
}

// accept looks at everything but the body.
func (w *Webhook) accept(r *http.Request) (map[string]string, error) {
	environ, err := environOf(r.URL.EscapedPath())
	switch media, _, bad := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case err != nil:
		return nil, fail(http.StatusNotFound, metav1.StatusReasonNotFound, "%v", err)
	case r.Method != http.MethodPost:
		return nil, fail(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "%s: an AdmissionReview comes by POST", r.Method)
	case bad != nil || media != "application/json":
		return nil, fail(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"Content-Type %q: want application/json", r.Header.Get("Content-Type"))
	case r.ContentLength > w.o.Limits.MaxBody:
		return nil, tooLarge(w.o.Limits.MaxBody)
	}
	return environ, nil
}

func tooLarge(limit int64) error {
	return fail(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "the review is longer than %d bytes", limit)
}

// timeoutOf is what the API server says it will wait for, by the parameter timeout: its
// answer would go nowhere later.
func timeoutOf(r *http.Request, most time.Duration) (time.Duration, error) {
	if r.URL.RawQuery == "" {
		return most, nil
	}
	text := r.URL.Query().Get("timeout")
	if text == "" {
		return most, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "timeout=%q: want a time, for example 10s", text)
	}
	return min(d, most), nil
}

// read takes the body before any of the places where work is done: a slow client waits in
// its own connection.
func (w *Webhook) read(rw http.ResponseWriter, r *http.Request, into *bytes.Buffer, until time.Time) error {
	control := http.NewResponseController(rw)
	// Not every connection has deadlines: one of a test may not.
	_ = control.SetReadDeadline(until)
	if r.ContentLength > 0 {
		into.Grow(int(min(r.ContentLength, keptBuffer)) + bytes.MinRead)
	}
	n, err := into.ReadFrom(io.LimitReader(r.Body, w.o.Limits.MaxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fail(http.StatusRequestTimeout, metav1.StatusReasonTimeout, "the review did not come in time: %d bytes of it did", n)
	case err != nil:
		return fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "reading the review: %v", err)
	case n > w.o.Limits.MaxBody:
		return tooLarge(w.o.Limits.MaxBody)
	case n == 0:
		return fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the body is empty: want an AdmissionReview")
	}
	_ = control.SetReadDeadline(time.Time{})
	return nil
}

// refuse answers with a Status, whose message the API server shows.
func (w *Webhook) refuse(rw http.ResponseWriter, err error) {
	f := &failure{http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error()}
	errors.As(err, &f)
	w.o.Log.Warn("a review is not answered", "code", f.code, "why", f.text)
	status := status{Kind: "Status", APIVersion: "v1", Status: metav1.StatusFailure, Message: "outrider: " + f.text, Reason: f.reason, Code: int32(f.code)}
	text, err := json.Marshal(status)
	if err != nil {
		text = []byte("{}") // strings and numbers
	}
	if f.code == http.StatusMethodNotAllowed {
		rw.Header().Set("Allow", http.MethodPost)
	}
	send(rw, f.code, text)
}

func send(rw http.ResponseWriter, code int, body []byte) {
	h := rw.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	rw.WriteHeader(code)
	rw.Write(body) // the client may be gone: that is its own affair
}
