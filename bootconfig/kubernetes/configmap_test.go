package kubernetes

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	"outrider.dev/bootconfig"
)

// The suite runs on client-go's fake, or with "go test -kubeconfig PATH" on a real cluster. In a real cluster it
// creates and removes the ConfigMap bootconfig-test in the namespace "default".
var kubeconfig = flag.String("kubeconfig", "", "kubeconfig of a real cluster; default: client-go's fake")

// cluster returns a client, and a function that counts the watches that have begun.
func cluster(t *testing.T) (kubernetes.Interface, func() int) {
	t.Helper()
	if *kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		return kubernetes.NewForConfigOrDie(config), func() int { return 1 << 30 } // on a real cluster no test has to wait for a watch, because a watch begins at the given version and misses nothing
	}
	client := fake.NewClientset()
	var mu sync.Mutex
	versions, watches := 1, 0
	// The fake sets no resource versions, so the test does.
	number := func(action k8stesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		versions++
		action.(interface{ GetObject() runtime.Object }).GetObject().(*corev1.ConfigMap).ResourceVersion = fmt.Sprint(versions)
		return false, nil, nil
	}
	client.PrependReactor("create", "configmaps", number)
	client.PrependReactor("update", "configmaps", number)
	client.PrependWatchReactor("configmaps", func(action k8stesting.Action) (bool, watch.Interface, error) {
		w, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		mu.Lock()
		defer mu.Unlock()
		watches++
		return true, w, err
	})
	return client, func() int { mu.Lock(); defer mu.Unlock(); return watches }
}

func TestAConfigMapByTheAPI(t *testing.T) {
	client, watches := cluster(t)
	maps := client.CoreV1().ConfigMaps("default")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bootconfig-test"}, Data: map[string]string{"a": "one"}}
	t.Cleanup(func() { maps.Delete(t.Context(), object.Name, metav1.DeleteOptions{}) })
	p, err := NewConfigMap(client, "default", object.Name, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Fetch(t.Context(), bootconfig.Request{}); !apierrors.IsNotFound(err) {
		t.Errorf("before it exists: %v", err)
	}
	created, err := maps.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Delete(t.Context(), object.Name, metav1.DeleteOptions{})
	first, err := p.Fetch(t.Context(), bootconfig.Request{})
	if err != nil || string(first.Data) != "one" || first.Version != created.ResourceVersion {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := p.Fetch(t.Context(), bootconfig.Request{Version: first.Version}); !errors.Is(err, bootconfig.ErrUnchanged) {
		t.Errorf("again: %v", err)
	}
	if _, err := p.Fetch(t.Context(), bootconfig.Request{Version: first.Version, Wait: time.Second}); !errors.Is(err, bootconfig.ErrUnchanged) {
		t.Errorf("held: %v", err)
	}
	before := watches()
	fetched := make(chan bootconfig.Document, 1)
	go func() {
		d, err := p.Fetch(t.Context(), bootconfig.Request{Version: first.Version, Wait: time.Minute})
		if err != nil {
			t.Error(err)
		}
		fetched <- d
	}()
	for watches() == before && *kubeconfig == "" {
		time.Sleep(time.Millisecond)
	}
	changed := created.DeepCopy()
	changed.Data["a"] = "two"
	if _, err := maps.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	second := <-fetched
	if string(second.Data) != "two" || second.Version == first.Version {
		t.Errorf("after the change: %+v", second)
	}
	other, err := NewConfigMap(client, "default", object.Name, "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Fetch(t.Context(), bootconfig.Request{}); err == nil || !strings.Contains(err.Error(), `no key "b"`) {
		t.Errorf("another key: %v", err)
	}
}

// If the API server has forgotten a version, Fetch gets the document anew.
func TestAnExpiredVersion(t *testing.T) {
	client := fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", ResourceVersion: "9"}, BinaryData: map[string][]byte{"k": []byte("bytes")},
	})
	client.PrependWatchReactor("configmaps", func(k8stesting.Action) (bool, watch.Interface, error) {
		w := watch.NewFakeWithChanSize(1, false)
		status := apierrors.NewResourceExpired("too old resource version").Status()
		w.Error(&status)
		return true, w, nil
	})
	p, err := NewConfigMap(client, "default", "a", "k")
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Fetch(t.Context(), bootconfig.Request{Version: "1", Wait: time.Minute})
	if err != nil || string(d.Data) != "bytes" {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestWrongOptionsOfAConfigMap(t *testing.T) {
	if _, err := NewConfigMap(nil, "a", "b", "c"); err == nil {
		t.Error("no client is taken")
	}
	if _, err := NewConfigMap(fake.NewClientset(), "a", "", "c"); err == nil {
		t.Error("no name is taken")
	}
}
