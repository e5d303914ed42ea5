package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"outrider.dev/test/process"
)

func service(name, note string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: "1", Annotations: map[string]string{"note": note}}}
}

func TestAStoreTellsWhatChanged(t *testing.T) {
	var got []string
	s := newStore(func(old string, o metav1.Object) string { return old + o.GetAnnotations()["note"] })
	s.changed = func(n types.NamespacedName, before, now string, there bool) {
		got = append(got, fmt.Sprintf("%s:%s>%s,%v", n.Name, before, now, there))
	}
	synced := func() bool {
		select {
		case <-s.synced:
			return true
		default:
			return false
		}
	}
	s.Add(service("a", "1"))
	if synced() {
		t.Error("synced before the first list")
	}
	s.Replace([]any{service("a", "2"), service("b", "1")}, "")
	s.Update(service("b", "2"))
	s.Delete(service("never", ""))
	s.Delete(service("a", ""))
	s.Replace(nil, "")
	s.Replace(nil, "")
	want := "a:>1,true a:1>12,true b:>1,true b:1>12,true a:12>,false b:12>,false"
	if have := strings.Join(got, " "); have != want || !synced() || len(s.names()) != 0 {
		t.Errorf("got %s\nwant %s; synced %v; left %v", got, want, synced(), s.names())
	}
	if err := s.Add("text"); !errors.Is(err, errNoObject) {
		t.Errorf("what is no object: %v", err)
	}
}

// A server answers lists and watches as its fields specify.
type server struct {
	mu              sync.Mutex
	listed, watched error // errors to answer with; nil: success
	items           []corev1.Service
	watches         []*watch.FakeWatcher
	questions       int
}

func (s *server) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.questions
}

func (s *server) watching() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches) > 0
}

func (s *server) set(listed, watched error, items ...corev1.Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed, s.watched, s.items = listed, watched, items
	for _, w := range s.watches {
		w.Stop()
	}
	s.watches = nil
}

func (s *server) feed() feed {
	return feed{
		what: "services",
		list: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.questions++
			if s.listed != nil {
				return nil, s.listed
			}
			return &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: s.items}, nil
		},
		watch: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.questions++
			if s.watched != nil {
				return nil, s.watched
			}
			w := watch.NewFake()
			s.watches = append(s.watches, w)
			return w, nil
		},
	}
}

// While an API server is unavailable, the store does not change and the log mentions it once. Changes
// in that time are noticed soon after it has returned.
func TestAnAPIServerThatIsAway(t *testing.T) {
	services := schema.GroupResource{Resource: "services"}
	refused := &errDial{syscall.ECONNREFUSED}
	for name, away := range map[string]struct {
		listed, watched error
		reason          string
	}{
		"it refuses connections":       {refused, refused, "connection refused"},
		"it has too much to do":        {apierrors.NewTooManyRequests("later", 1), apierrors.NewTooManyRequests("later", 1), "later"},
		"it forbids to list and watch": {apierrors.NewForbidden(services, "", errors.New("no role")), apierrors.NewForbidden(services, "", errors.New("no role")), "no role; the chart has the roles"},
		"it forbids to watch":          {nil, apierrors.NewForbidden(services, "", errors.New("no role")), "no role"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			c := &Cluster{log: slog.New(slog.NewTextHandler(&log, nil))}
			c.trouble.log = c.log
			s := &server{}
			s.set(nil, nil, *service("a", "first"))
			to := newStore(func(_ string, o metav1.Object) string { return o.GetAnnotations()["note"] })
			ctx, cancel := context.WithCancel(t.Context())
			var done sync.WaitGroup
			done.Go(func() { c.follow(ctx, s.feed(), to, nil) })
			note := func() string { v, _ := to.get(types.NamespacedName{Namespace: "n", Name: "a"}); return v }
			until := func(what string, ok func() bool) {
				t.Helper()
				process.Retry(t, func() error {
					if ok() {
						return nil
					}
					return fmt.Errorf("%s: %q, %v", what, note(), c.Trouble())
				})
			}
			until("it watches", func() bool { return note() == "first" && s.watching() })
			s.set(away.listed, away.watched, *service("a", "first"))
			until("it is known to be away", func() bool { return len(c.Trouble()) == 1 })
			before := s.calls()
			until("it is called again and again", func() bool { return s.calls() >= before+3 })
			if got := c.Trouble(); note() != "first" || len(got) != 1 || !strings.Contains(got[0], away.reason) {
				t.Errorf("away: %q, %v", note(), got)
			}
			s.set(nil, nil, *service("a", "second"))
			until("it watches again", s.watching)
			s.mu.Lock()
			s.watches[0].Modify(service("a", "second")) // the server resumes where the watch ended
			s.mu.Unlock()
			until("what changed is seen", func() bool { return note() == "second" && len(c.Trouble()) == 0 })
			cancel()
			done.Wait()
			if n := strings.Count(log.String(), "\n"); n != 2 {
				t.Errorf("%d lines in the log, want one when it went and one when it came:\n%s", n, log.String())
			}
		})
	}
}

// errDial is the error of a failed dial.
type errDial struct{ errno syscall.Errno }

func (e *errDial) Error() string { return "dial: " + e.errno.Error() }
func (e *errDial) Unwrap() error { return e.errno }
