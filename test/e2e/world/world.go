package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"outrider.dev/test/cluster/containerd"
)

// A World is the cluster in which this process runs.
type World struct {
	Client  kubernetes.Interface
	Root    string // root of the repository
	Dir     string // directory of the cluster
	Version string // version of Kubernetes
	ByNode  bool   // outrider-node captures traffic and adds the gates

	objects dynamic.Interface
	runtime *containerd.Log
	logs    *logs

	mu      sync.Mutex
	pods    map[string][]seen // by uid
	changed chan struct{}     // closed at the next change
}

// seen is a pod as the API server sent it at a time.
type seen struct {
	at   time.Time
	gone bool
	pod  *corev1.Pod
}

// Open watches the cluster in which this process runs, until ctx ends.
func Open(ctx context.Context, root string) (*World, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 200, 400
	w := &World{Root: root, Dir: os.Getenv(dirVariable), Version: os.Getenv("OUTRIDER_E2E_KUBE"), ByNode: os.Getenv(runtimeVariable) == nodesRuntime,
		pods: map[string][]seen{}, changed: make(chan struct{})}
	if err := w.connect(config); err != nil {
		return nil, err
	}
	if w.runtime, err = containerd.Follow(ctx, os.Getenv("CONTAINERD_ADDRESS")); err != nil {
		return nil, err
	}
	go func() {
		for {
			select {
			case <-w.runtime.Changed:
				w.change()
			case <-ctx.Done():
				return
			}
		}
	}()
	if w.logs, err = followLogs(filepath.Join(w.Dir, "log", "pods"), w.change); err != nil {
		return nil, err
	}
	return w, w.followPods(ctx)
}

func (w *World) connect(config *rest.Config) (err error) {
	if w.Client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	w.objects, err = dynamic.NewForConfig(config)
	return err
}

// followPods records every status of every pod.
func (w *World) followPods(ctx context.Context) error {
	informer := informers.NewSharedInformerFactory(w.Client, 0).Core().V1().Pods().Informer()
	saw := func(object any, gone bool) {
		pod, ok := object.(*corev1.Pod)
		if last, is := object.(cache.DeletedFinalStateUnknown); is {
			pod, ok = last.Obj.(*corev1.Pod)
		}
		if !ok {
			return
		}
		w.mu.Lock()
		w.pods[string(pod.UID)] = append(w.pods[string(pod.UID)], seen{time.Now(), gone, pod})
		w.mu.Unlock()
		w.change()
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { saw(o, false) },
		UpdateFunc: func(_, o any) { saw(o, false) },
		DeleteFunc: func(o any) { saw(o, true) },
	}); err != nil {
		return err
	}
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("the pods of the cluster cannot be watched")
	}
	return nil
}

func (w *World) change() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
}

// Patience is the time limit of a wait, long enough for a busy machine.
const Patience = 5 * time.Minute

// Until waits until a predicate holds, and evaluates it whenever anything has changed.
func (w *World) Until(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		if holds() {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // the predicate may depend on something that is not watched
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s", what, Patience)
		}
	}
}

// Namespace creates a namespace with labels, and waits until the namespace has its service account "default".
func (w *World) Namespace(ctx context.Context, name string, labels map[string]string) error {
	_, err := w.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return w.Until(ctx, "the service account of namespace "+name, func() bool {
		_, err := w.Client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
}
