package kube

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
