package webhook

import (
	"context"
	"crypto/tls"
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
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/pod/inject"
)

// Options of a webhook. The zero value of a field means its default.
type Options struct {
	Inject inject.Options // until [Webhook.Use]

	// Namespace is the control plane's own, default outrider-system. Its pods are never
	// changed, whatever their labels are.
	Namespace string

	// Namespaces returns the labels of a namespace, and whether they are known. It is called
	// for each review. Default: none are known.
	Namespaces func(name string) (inject.Namespace, bool)

	// Commands looks up the commands of images, for containers that name no command and
	// need a gate. It may take half of the time that is left. Default: no look-ups.
	Commands func(ctx context.Context, images []string) map[string]inject.ImageCommand

	Limits Limits
	Log    *slog.Logger // default: none
}

// Limits bound what a client can cost. The zero value of a field means its default.
type Limits struct {
	MaxBody     int64         // default 3 MiB, the API server's own limit for a request
	Concurrency int           // reviews at a time; default four for each processor
	Timeout     time.Duration // of a review, including the reading of its body; default 30s, the API's maximum
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
	return o
}

// A Webhook is an [http.Handler] of AdmissionReviews. It may be used from many
// goroutines.
type Webhook struct {
	o        Options
	options  atomic.Pointer[inject.Options]
	slots    chan struct{}
	counters counters

	injectPod func(*corev1.Pod, inject.Namespace, inject.Options) (inject.Result, error) // replaced in tests
}

// New returns a webhook.
func New(o Options) *Webhook {
	o = o.complete()
	w := &Webhook{o: o, slots: make(chan struct{}, o.Limits.Concurrency), injectPod: inject.Pod}
	w.Use(o.Inject)
	return w
}

// Use sets the options of injection, from the next review on.
func (w *Webhook) Use(o inject.Options) { w.options.Store(&o) }

// Server is an HTTPS server for w; start it by ServeTLS with empty names of files. Silent
// clients are disconnected.
//
// Each handshake takes the current certificate, and there are no session tickets, since a
// resumed connection does not see a new one. No client certificate is requested: that of an
// API server need not be of this mesh. The API server speaks HTTP/1.1 to webhooks
// (kubernetes apiserver, pkg/util/webhook/client.go), other clients may speak HTTP/2.
func (w *Webhook) Server(certificate func() (*tls.Certificate, error)) *http.Server {
	return &http.Server{
		Handler: w,
		TLSConfig: &tls.Config{
			MinVersion:             tls.VersionTLS12,
			NextProtos:             []string{"h2", "http/1.1"},
			SessionTicketsDisabled: true,
			GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
		},
		ReadHeaderTimeout: 10 * time.Second,
		WriteTimeout:      w.o.Limits.Timeout + 10*time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(w.o.Log.Handler(), slog.LevelDebug),
	}
}

// A failure is a request that is answered without an AdmissionReview. The API server then
// applies the failurePolicy.
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
	answer, code, err := w.answer(rw, r, began)
	w.counters.add(code, time.Since(began))
	if err != nil {
		w.refuse(rw, err)
		return
	}
	send(rw, http.StatusOK, answer)
}

// answer handles a whole request, within the limits. A panic ends the request alone.
func (w *Webhook) answer(rw http.ResponseWriter, r *http.Request, began time.Time) (answer []byte, code inject.Code, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.o.Log.Error("a review made the webhook panic", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			answer, code, err = nil, Failed, fail(http.StatusInternalServerError, metav1.StatusReasonInternalError,
				"the webhook failed at this pod: a mistake in it and not in the pod; outriderd's log has more")
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
	body, err := w.read(rw, r, began.Add(timeout))
	if err != nil {
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
	return w.review(ctx, body, environ)
}

// accept checks everything but the body, and returns the variables in the path.
func (w *Webhook) accept(r *http.Request) (map[string]string, error) {
	environ, err := environOf(r.URL.EscapedPath())
	switch media, _, bad := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case err != nil:
		return nil, fail(http.StatusNotFound, metav1.StatusReasonNotFound, "%v", err)
	case r.Method != http.MethodPost:
		return nil, fail(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "%s: want a POST with an AdmissionReview", r.Method)
	case bad != nil || media != "application/json":
		return nil, fail(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"Content-Type %q: want application/json", r.Header.Get("Content-Type"))
	}
	return environ, nil
}

// timeoutOf returns how long the API server waits, from the parameter timeout.
func timeoutOf(r *http.Request, most time.Duration) (time.Duration, error) {
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

// read reads the body. A slow client takes no slot meanwhile.
func (w *Webhook) read(rw http.ResponseWriter, r *http.Request, until time.Time) ([]byte, error) {
	control := http.NewResponseController(rw)
	// A connection of a test may not support deadlines.
	_ = control.SetReadDeadline(until)
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, w.o.Limits.MaxBody))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return nil, fail(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "the review is longer than %d bytes", long.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fail(http.StatusRequestTimeout, metav1.StatusReasonTimeout, "the review did not arrive in time: %d bytes did", len(body))
	case err != nil:
		return nil, fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "reading the review: %v", err)
	case len(body) == 0:
		return nil, fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the body is empty: want an AdmissionReview")
	}
	_ = control.SetReadDeadline(time.Time{})
	return body, nil
}

// refuse answers with a Status, whose message the API server shows.
func (w *Webhook) refuse(rw http.ResponseWriter, err error) {
	f := &failure{http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error()}
	errors.As(err, &f)
	w.o.Log.Warn("a review is not answered", "code", f.code, "why", f.text)
	status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Message: prefix + f.text, Reason: f.reason, Code: int32(f.code)}
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
	rw.Write(body) // an error means that the client is gone
}
