package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/core/controlplane/conns"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/imagecmd"
	"outrider.dev/internal/core/pod/inject/verdict"
)

// Options of a webhook. The zero value of a field means its default.
type Options struct {
	Inject inject.Options // used for injection until [Webhook.Use] is called

	// Namespace is the control plane's own namespace; default outrider-system. Pods in it are never changed,
	// whatever their labels.
	Namespace string

	// Namespaces returns a namespace with its labels and annotations, or false if they are unknown. It is
	// called for each review. Default: all are unknown.
	Namespaces func(name string) (inject.Namespace, bool)

	// Commands looks up the commands in images, for containers that specify no command and need a gate. Its
	// context ends after half of the review's remaining time. Default: no look-ups.
	Commands func(ctx context.Context, images []string) map[string]imagecmd.Command

	// Unenforced returns a warning for each object that should forbid something for a pod with these labels,
	// but is not enforced. Default: no warnings.
	Unenforced func(namespace string, labels map[string]string) []string

	Limits Limits
	Log    *slog.Logger // default: none
}

// Limits limit the cost of clients. The zero value of a field means its default.
type Limits struct {
	MaxBody     int64         // in bytes; default 3 MiB, the API server's own limit for a request
	Concurrency int           // reviews at the same time; default one for each processor, but at least two
	Timeout     time.Duration // maximum time for a review and its body; default 30s, the API's maximum
}

// Limits for all clients together. A review takes some 20 times its size in memory until it is answered, and
// outriderd must stay within 256 MiB if there are few proxies.
const (
	// ordinaryBody is the maximum size of a review in the ordinary lane; the review of an ordinary pod has 5
	// to 50 kB. Longer ones have a separate lane, so that they only delay each other.
	ordinaryBody = 256 << 10
	// ordinaryBytes limits the reviews of the ordinary lane that are in memory. 16 MiB suffice for the
	// reviews of 300 to 3,000 pods at once; an API server sends at most 200 at a time
	// (--max-mutating-requests-inflight).
	ordinaryBytes = 16 << 20
	// longBytes is the number of reviews of the maximum size that are in memory: one is answered while the
	// next is read.
	longBytes = 2
	// A body must arrive at bodyRate, after bodyMoment for the first packets. The API server sends it all at
	// once.
	bodyMoment, bodyRate = 2 * time.Second, 1 << 20 // bytes a second
)

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
		o.Limits.Concurrency = max(2, runtime.GOMAXPROCS(0)) // more reviews at the same time would only share the processors
	}
	if o.Limits.Timeout <= 0 {
		o.Limits.Timeout = 30 * time.Second
	}
	return o
}

// A Webhook is an [http.Handler] for AdmissionReviews. It is safe for concurrent use.
type Webhook struct {
	o        Options
	options  atomic.Pointer[inject.Options]
	ordinary lane
	long     lane
	counters counters

	injectPod func(*corev1.Pod, inject.Namespace, inject.Options) (inject.Result, error) // replaced in tests
}

// New returns a webhook with the defaults for all unset options. It starts nothing.
func New(o Options) *Webhook {
	o = o.complete()
	most, n := o.Limits.MaxBody, int64(o.Limits.Concurrency)
	w := &Webhook{o: o, injectPod: inject.Pod,
		// An address may hold at most a quarter of the bytes and half of the processors, so that other
		// addresses get the rest.
		ordinary: lane{conns.NewGate(ordinaryBytes, ordinaryBytes/4), conns.NewGate(n, max(1, n/2))},
		long:     lane{conns.NewGate(longBytes*most, most), conns.NewGate(1, 1)},
	}
	w.Use(o.Inject)
	return w
}

// A lane admits reviews of similar size. A review enters [lane.bytes] with its length before its body is
// read, and [lane.places] while it uses a processor.
type lane struct{ bytes, places *conns.Gate }

func (w *Webhook) laneOf(length int64) lane {
	if length > ordinaryBody {
		return w.long
	}
	return w.ordinary
}

// Use sets the options for injection, which take effect with the next review.
func (w *Webhook) Use(o inject.Options) { w.options.Store(&o) }

// Server returns an HTTPS server for w; start it by ServeTLS with empty file names. It disconnects silent
// clients.
//
// Each handshake uses the current certificate. There are no session tickets, because a resumed connection
// would not see a new certificate. The server offers only HTTP/1.1, which the API server's client uses
// (kubernetes apiserver, pkg/util/webhook/client.go), with one request at a time.
//
// If clients is nil, no client certificate is requested. Otherwise the handshake fails unless [Clients]
// accepts the client's certificate.
func (w *Webhook) Server(certificate func() (*tls.Certificate, error), clients *Clients) *http.Server {
	s := &http.Server{
		Handler:   w,
		Protocols: new(http.Protocols),
		TLSConfig: &tls.Config{
			MinVersion:             tls.VersionTLS12, // an API server of a FIPS build may end there
			NextProtos:             []string{"http/1.1"},
			SessionTicketsDisabled: true,
			GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
		},
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      w.o.Limits.Timeout + 10*time.Second,
		IdleTimeout:       2 * time.Minute,
		ConnContext:       conns.InContext,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(w.o.Log.Handler(), slog.LevelDebug),
	}
	s.Protocols.SetHTTP1(true)
	if clients != nil {
		clients.require(s.TLSConfig)
	}
	return s
}

// A failure is the reason why a request is not answered with an AdmissionReview. The API server then applies
// the failurePolicy.
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
	conns.Authenticated(r.Context())
	send(rw, http.StatusOK, answer)
}

// answer checks, reads and answers a request within the limits. A panic ends only this request.
func (w *Webhook) answer(rw http.ResponseWriter, r *http.Request, began time.Time) (answer []byte, code verdict.Code, err error) {
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
	ctx, cancel := context.WithDeadline(r.Context(), began.Add(timeout))
	defer cancel()
	lane, address := w.laneOf(r.ContentLength), conns.AddressOf(r)
	leave, err := lane.bytes.Enter(ctx, address, r.ContentLength)
	if err != nil {
		return nil, Failed, busy(timeout)
	}
	defer leave()
	body, err := w.read(rw, r, began.Add(timeout))
	if err != nil {
		return nil, Failed, err
	}
	p := &place{gate: lane.places, address: address, namespace: namespaceOf(body)}
	if err := p.enter(ctx); err != nil {
		return nil, Failed, busy(timeout)
	}
	defer p.free()
	return w.review(ctx, p, body, environ)
}

func busy(timeout time.Duration) error {
	return fail(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		"other reviews are under way and none ended within %s: give outriderd more processors or replicas, or let only the API server in (--webhook-client-ca)", timeout)
}

// A place is a review's turn to use a processor.
type place struct {
	gate      *conns.Gate
	address   netip.Addr
	namespace string // reviews from one API server take turns by namespace, because one tenant may cause many
	leave     func()
}

func (p *place) enter(ctx context.Context) (err error) {
	p.leave, err = p.gate.EnterFor(ctx, p.address, p.namespace, 1)
	return err
}

// namespaceOf returns the namespace of a review that is not decoded yet, or an empty string if it is not
// found. It takes the first field "namespace", because the API server writes that before anything from the
// pod's author (k8s.io/api/admission/v1 AdmissionRequest).
func namespaceOf(body []byte) string {
	_, after, _ := bytes.Cut(body[:min(len(body), 4<<10)], []byte(`"namespace":"`))
	name, _, _ := bytes.Cut(after[:min(len(after), 64)], []byte(`"`))
	return string(name)
}

func (p *place) free() {
	if p.leave != nil {
		p.leave()
	}
}

// without gives up the turn while it calls the function wait, and then waits for another turn. It returns
// false if ctx ends first.
func (p *place) without(ctx context.Context, wait func()) bool {
	p.free()
	p.leave = nil
	wait()
	return p.enter(ctx) == nil
}

// accept checks everything except the body, and returns the variables in the path.
func (w *Webhook) accept(r *http.Request) (map[string]string, error) {
	environ, err := environOf(r.URL.EscapedPath())
	most := w.o.Limits.MaxBody
	switch media, _, bad := mime.ParseMediaType(r.Header.Get("Content-Type")); {
	case err != nil:
		return nil, fail(http.StatusNotFound, metav1.StatusReasonNotFound, "%v", err)
	case r.Method != http.MethodPost:
		return nil, fail(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "%s: want a POST with an AdmissionReview", r.Method)
	case bad != nil || media != "application/json":
		return nil, fail(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"Content-Type %q: want application/json", r.Header.Get("Content-Type"))
	case r.ContentLength < 0:
		return nil, fail(http.StatusLengthRequired, metav1.StatusReasonBadRequest, "the request has no Content-Length, which the API server sends")
	case r.ContentLength > most:
		return nil, fail(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "the review has %d bytes: want at most %d", r.ContentLength, most)
	case r.ContentLength == 0:
		return nil, fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the body is empty: want an AdmissionReview")
	}
	return environ, nil
}

// timeoutOf returns the time for which the API server waits for the answer, from the query parameter timeout.
// The second argument is the maximum and the default.
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

// read reads the body, whose length is known. It fails if the client sends too slowly, because the review
// occupies a part of [lane.bytes] meanwhile.
func (w *Webhook) read(rw http.ResponseWriter, r *http.Request, until time.Time) ([]byte, error) {
	control := http.NewResponseController(rw)
	// Errors of SetReadDeadline are ignored, because connections in tests may not support deadlines.
	due := time.Now().Add(bodyMoment + time.Duration(r.ContentLength)*time.Second/bodyRate)
	if due.Before(until) {
		until = due
	}
	_ = control.SetReadDeadline(until)
	body := make([]byte, r.ContentLength)
	n, err := io.ReadFull(r.Body, body)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fail(http.StatusRequestTimeout, metav1.StatusReasonTimeout, "the review did not arrive in time: %d of %d bytes did", n, len(body))
	case err != nil:
		return nil, fail(http.StatusBadRequest, metav1.StatusReasonBadRequest, "reading the review: %v", err)
	}
	_ = control.SetReadDeadline(time.Time{})
	return body, nil
}

// refuse answers with a Status, whose message the API server displays.
func (w *Webhook) refuse(rw http.ResponseWriter, err error) {
	f := &failure{http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error()}
	errors.As(err, &f)
	w.o.Log.Warn("a review is not answered", "code", f.code, "why", f.text)
	status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Message: prefix + f.text, Reason: f.reason, Code: int32(f.code)}
	text, err := json.Marshal(status)
	if err != nil {
		text = []byte("{}") // cannot fail: it contains only strings and numbers
	}
	switch f.code {
	case http.StatusMethodNotAllowed:
		rw.Header().Set("Allow", http.MethodPost)
	case http.StatusServiceUnavailable:
		rw.Header().Set("Retry-After", "1")
	}
	if f.code >= 400 && f.code < 500 {
		// An API server never causes these errors. The client has to open a new connection: that costs it
		// more than another request on this connection, and the rate of connections is limited.
		rw.Header().Set("Connection", "close")
	}
	send(rw, f.code, text)
}

func send(rw http.ResponseWriter, code int, body []byte) {
	h := rw.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	rw.WriteHeader(code)
	rw.Write(body) // an error means that the client has disconnected
}
