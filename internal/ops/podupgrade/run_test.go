package podupgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/ops/kubeclient"
)

const (
	older = "outrider-proxy:1"
	newer = "outrider-proxy:2"
)

// short is the time limit in tests in which a pod does not become ready. It is long enough for pods that become
// ready at once. The tests use real time because client-go's reflector cannot wait in a bubble of synctest.
const short = 2 * time.Second

var pods = corev1.SchemeGroupVersion.WithResource("pods")

// A cluster is a fake API server with a kubelet. Unlike client-go's fake, it selects objects by name.
type cluster struct {
	*fake.Clientset
	// kubelet sets the state of a pod whose proxy got another image; if nil, the proxy runs and is ready.
	kubelet func(c *cluster, pod *corev1.Pod)
	// once sets the state of a pod that tests whether an image runs on a node; if nil, the pod succeeds.
	once func(pod *corev1.Pod)
	exec func(pod string) (string, error)
	// watched is called in a goroutine when a watch of pods begins; may be nil.
	watched func()
	// limit is the time limit for a pod; 0 means the default, which no test reaches.
	limit time.Duration

	mu    sync.Mutex
	lines []string // the requests and steps, in order
}

func newCluster(objects ...runtime.Object) *cluster {
	c := &cluster{Clientset: fake.NewClientset(objects...)}
	store := clienttesting.ObjectReaction(c.Tracker())
	c.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		c.note("%s runs %s", pod.Spec.NodeName, pod.Spec.Containers[0].Image)
		pod.Status.Phase = corev1.PodSucceeded
		if c.once != nil {
			c.once(pod)
		}
		return true, pod, c.Tracker().Create(pods, pod, pod.Namespace)
	})
	c.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		_, object, err := store(a)
		if err != nil {
			return true, nil, err
		}
		pod := object.(*corev1.Pod).DeepCopy()
		c.note("%s gets %s", pod.Name, kubeclient.Proxy(pod).Image)
		if c.kubelet == nil {
			runs(pod)
		} else {
			c.kubelet(c, pod)
		}
		if _, err := c.Tracker().Get(pods, pod.Namespace, pod.Name); err == nil { // else the function kubelet deleted the pod
			return true, pod, c.Tracker().Update(pods, pod, pod.Namespace)
		}
		return true, pod, nil
	})
	c.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		_, object, err := store(a)
		if err != nil {
			return true, nil, err
		}
		list := object.(*corev1.PodList)
		list.Items = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
			return !a.(clienttesting.ListAction).GetListRestrictions().Fields.Matches(fields.Set{"metadata.name": p.Name})
		})
		return true, list, nil
	})
	c.PrependWatchReactor("pods", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := c.Tracker().Watch(pods, a.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		if c.watched != nil {
			go c.watched()
		}
		return true, watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
			p := e.Object.(*corev1.Pod)
			return e, a.(clienttesting.WatchAction).GetWatchRestrictions().Fields.Matches(fields.Set{"metadata.name": p.Name})
		}), nil
	})
	return c
}

func (c *cluster) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, fmt.Sprintf(format, args...))
}

// run replaces the proxies of the given pods, and records each step in lines.
func (c *cluster) run(ctx context.Context, all []Candidate, progress func(Event)) (Result, error) {
	return Run(ctx, all, Options{
		Client: &kubeclient.Client{Core: c}, Timeout: c.limit, pull: c.limit,
		exec: func(_ context.Context, _, pod string, command ...string) (string, error) {
			c.note("%s is announced: %s", pod, strings.Join(command[2:], " "))
			if c.exec != nil {
				return c.exec(pod)
			}
			return "", nil
		},
		Progress: func(e Event) {
			c.note("%s: %s", e.Pod.Name, e.Step)
			if progress != nil {
				progress(e)
			}
		},
	})
}

// images returns the images of the proxies, by the names of their pods.
func (c *cluster) images(t *testing.T) map[string]string {
	t.Helper()
	list, err := c.Tracker().List(pods, corev1.SchemeGroupVersion.WithKind("Pod"), "shop")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, p := range list.(*corev1.PodList).Items {
		if proxy := kubeclient.Proxy(&p); proxy != nil {
			out[p.Name] = proxy.Image
		}
	}
	return out
}

// pod returns a pod with a proxy that runs and is ready.
func pod(name string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-of-" + name), Annotations: map[string]string{contract.Status: "{}"}},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "app"}, {Name: contract.ProxyContainer, Image: older}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "app"}, {Name: contract.ProxyContainer}}},
	}
	runs(p)
	return p
}

// runs makes the proxy of the pod run its current image and be ready.
func runs(p *corev1.Pod) {
	s := kubeclient.Status(p, contract.ProxyContainer)
	s.ContainerID += "+" + kubeclient.Proxy(p).Image
	s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ready(p, corev1.ConditionTrue)
}

func ready(p *corev1.Pod, is corev1.ConditionStatus) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}
}

// waits makes the proxy of the pod wait for this reason, as if it could not start.
func waits(p *corev1.Pod, reason string) {
	s := kubeclient.Status(p, contract.ProxyContainer)
	s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	ready(p, corev1.ConditionFalse)
}

func due(pods ...*corev1.Pod) (out []Candidate) {
	for _, p := range pods {
		out = append(out, Candidate{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Node: p.Spec.NodeName, From: older, To: newer,
			State: Outdated, workload: workloadOf(p), statusPort: "15020"})
	}
	return out
}

func names(all []Candidate) (out []string) {
	for _, c := range all {
		out = append(out, c.Name)
	}
	return out
}

// with returns a function for cluster.kubelet. It calls the function do for the pod of this name, and lets the
// proxies of the other pods run.
func with(name string, do func(c *cluster, p *corev1.Pod)) func(*cluster, *corev1.Pod) {
	return func(c *cluster, p *corev1.Pod) {
		if p.Name == name {
			do(c, p)
			return
		}
		runs(p)
	}
}

func replaceByAnother(t *testing.T, c *cluster, name string) {
	t.Helper()
	another := pod(name)
	another.UID = "another"
	if err := errors.Join(c.Tracker().Delete(pods, "shop", name), c.Tracker().Add(another)); err != nil {
		t.Fatal(err)
	}
}

// Run replaces the proxies of three pods, and in most cases the second one meets a problem.
func TestRun(t *testing.T) {
	const announced = " is announced: POST /replace --debug-port 15020 --status-port 15020"
	replaced := func(name string) []string {
		return []string{name + announced, name + " gets " + newer, name + ": replacing", name + ": replaced"}
	}
	prepared := []string{"node runs " + newer, "a: prepared"}
	tests := map[string]struct {
		before func(*testing.T, *cluster)
		want   []string // the lines about the second pod and after it
		left   []string
		gone   []string
		image  string // the image of the second proxy at the end
		err    string
	}{
		"all are replaced": {nil, slices.Concat(replaced("b"), replaced("c")), nil, nil, newer, ""},
		"its image cannot be pulled: it gets the old one, and no more is begun": {
			func(_ *testing.T, c *cluster) {
				c.kubelet = with("b", func(_ *cluster, p *corev1.Pod) {
					if kubeclient.Proxy(p).Image == newer {
						waits(p, "ImagePullBackOff")
						return
					}
					runs(p)
				})
			},
			[]string{"b" + announced, "b gets " + newer, "b: replacing", "b gets " + older, "b: rolled back"},
			[]string{"c"}, nil, older, "b.shop: not ready within 2s: ImagePullBackOff"},
		"its proxy ends again and again": {
			func(_ *testing.T, c *cluster) {
				c.kubelet = with("b", func(_ *cluster, p *corev1.Pod) {
					if runs(p); kubeclient.Proxy(p).Image == newer {
						kubeclient.Status(p, contract.ProxyContainer).State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: "no root"}}
						ready(p, corev1.ConditionFalse)
					}
				})
			},
			[]string{"b" + announced, "b gets " + newer, "b: replacing", "b gets " + older, "b: rolled back"},
			[]string{"c"}, nil, older, "b.shop: not ready within 2s: the proxy ended with status 3: no root"},
		"neither image gets ready": {
			func(_ *testing.T, c *cluster) {
				c.kubelet = with("b", func(_ *cluster, p *corev1.Pod) { runs(p); ready(p, corev1.ConditionFalse) })
			},
			[]string{"b" + announced, "b gets " + newer, "b: replacing", "b gets " + older, "b: failed"},
			[]string{"c"}, nil, older, "b.shop: not ready within 2s: the pod is not ready; with the image before: not ready within 2s: the pod is not ready"},
		"the API server refuses the image before": {
			func(_ *testing.T, c *cluster) {
				c.kubelet = with("b", func(c *cluster, p *corev1.Pod) {
					waits(p, "ErrImagePull")
					c.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
						return true, nil, errors.New("quota exceeded")
					})
				})
			},
			[]string{"b" + announced, "b gets " + newer, "b: replacing", "b: failed"},
			[]string{"c"}, nil, newer, "b.shop: not ready within 2s: ErrImagePull; it could not be rolled back: quota exceeded"},
		"its agent cannot drain": {
			func(_ *testing.T, c *cluster) {
				c.exec = func(pod string) (string, error) {
					if pod == "b" {
						return "connection refused\nand more", errors.New("exit code 1")
					}
					return "", nil
				}
			},
			[]string{"b" + announced, "b: failed"},
			[]string{"c"}, nil, older, "b.shop: its agent cannot drain for a replacement: connection refused: exit code 1"},
		"the API server does not answer": {
			func(_ *testing.T, c *cluster) {
				c.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					return a.(clienttesting.GetAction).GetName() == "b", nil, errors.New("etcdserver: request timed out")
				})
			},
			[]string{"b: failed"}, []string{"c"}, nil, older, "b.shop: etcdserver: request timed out"},
		"the kubelet reports no proxy": {
			func(t *testing.T, c *cluster) {
				p := pod("b")
				p.Status.ContainerStatuses = nil
				if err := c.Tracker().Update(pods, p, "shop"); err != nil {
					t.Fatal(err)
				}
			},
			[]string{"b: failed"}, []string{"c"}, nil, older, "b.shop: the kubelet reports no proxy"},
		"it was deleted": {
			func(t *testing.T, c *cluster) {
				if err := c.Tracker().Delete(pods, "shop", "b"); err != nil {
					t.Fatal(err)
				}
			},
			slices.Concat([]string{"b: gone"}, replaced("c")), nil, []string{"b"}, "", ""},
		"it is being deleted": {
			func(t *testing.T, c *cluster) {
				p := pod("b")
				p.DeletionTimestamp, p.Finalizers = &metav1.Time{}, []string{"a/b"}
				if err := c.Tracker().Update(pods, p, "shop"); err != nil {
					t.Fatal(err)
				}
			},
			slices.Concat([]string{"b: gone"}, replaced("c")), nil, []string{"b"}, older, ""},
		"another pod has its name": {
			func(t *testing.T, c *cluster) { replaceByAnother(t, c, "b") },
			slices.Concat([]string{"b: gone"}, replaced("c")), nil, []string{"b"}, older, ""},
		"another pod gets its name while it drains": {
			func(t *testing.T, c *cluster) {
				c.exec = func(pod string) (string, error) {
					if pod == "b" {
						replaceByAnother(t, c, pod)
					}
					return "", nil
				}
			},
			slices.Concat([]string{"b" + announced, "b: gone"}, replaced("c")), nil, []string{"b"}, older, ""},
		"it is deleted while it drains": {
			func(_ *testing.T, c *cluster) {
				c.exec = func(pod string) (string, error) {
					if pod == "b" {
						return "", errors.Join(c.Tracker().Delete(pods, "shop", pod), errors.New("container not found"))
					}
					return "", nil
				}
			},
			slices.Concat([]string{"b" + announced, "b: gone"}, replaced("c")), nil, []string{"b"}, "", ""},
		"it is deleted while its proxy starts": {
			func(t *testing.T, c *cluster) {
				c.kubelet = with("b", func(c *cluster, p *corev1.Pod) {
					if err := c.Tracker().Delete(pods, "shop", p.Name); err != nil {
						t.Error(err)
					}
				})
			},
			slices.Concat([]string{"b" + announced, "b gets " + newer, "b: replacing", "b: gone"}, replaced("c")), nil, []string{"b"}, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := []*corev1.Pod{pod("a"), pod("b"), pod("c")}
			c := newCluster(all[0], all[1], all[2])
			if strings.Contains(tt.err, "within "+short.String()) {
				c.limit = short
			}
			if tt.before != nil {
				tt.before(t, c)
			}
			result, err := c.run(t.Context(), due(all...), nil)
			if diff := cmp.Diff(slices.Concat(prepared, replaced("a"), tt.want), c.lines); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
			if got := fmt.Sprint(err); (tt.err == "") != (err == nil) || tt.err != "" && got != tt.err {
				t.Errorf("error %q, want %q", got, tt.err)
			}
			if got := names(result.Left); !slices.Equal(got, tt.left) {
				t.Errorf("left: %v, want %v", got, tt.left)
			}
			if got := names(result.Gone); !slices.Equal(got, tt.gone) {
				t.Errorf("gone: %v, want %v", got, tt.gone)
			}
			want := map[string]string{"a": newer, "b": tt.image, "c": newer}
			if tt.image == "" {
				delete(want, "b")
			}
			if len(tt.left) > 0 {
				want["c"] = older
			}
			if diff := cmp.Diff(want, c.images(t)); diff != "" {
				t.Errorf("images (-want +got):\n%s", diff)
			}
		})
	}
}

// If the new image does not run on a node, no proxy is stopped there, and the pod that tested the image is removed.
func TestAnImageThatDoesNotRun(t *testing.T) {
	waiting := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
				{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "not found"}}}}}
		}
	}
	for name, tt := range map[string]struct {
		once func(*corev1.Pod)
		err  string
	}{
		"it does not exist": {waiting("ErrImagePull"), "ErrImagePull: not found"},
		"it ends with a status": {func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{
				{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 126, Message: "exec format error"}}}}}
		}, "it ended with status 126: exec format error"},
		"the node refuses the pod": {func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods", Message: "full"}
		}, "OutOfpods: full"},
		"it is never pulled":      {waiting("ContainerCreating"), "not run within 2s: ContainerCreating: not found"},
		"the kubelet is away":     {func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }, "not run within 2s: the kubelet has not begun"},
		"its pod is taken away":   {nil, "the pod has been deleted meanwhile"},
		"its pod cannot be made":  {nil, "node: running outrider-proxy:2 once: forbidden: pod security"},
		"of an upgrade before us": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pod("a")
			c := newCluster(p)
			c.once = tt.once
			if strings.Contains(tt.err, "within "+short.String()) {
				c.limit = short
			}
			switch name {
			case "its pod is taken away":
				c.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
					return true, a.(clienttesting.CreateAction).GetObject(), nil
				})
			case "its pod cannot be made":
				c.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("forbidden: pod security")
				})
			case "of an upgrade before us":
				earlier := runOnce(due(p)[0])
				earlier.Status.Phase = corev1.PodSucceeded
				if err := c.Tracker().Add(earlier); err != nil {
					t.Fatal(err)
				}
			}
			result, err := c.run(t.Context(), due(p), nil)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			want, left := older, 1
			if tt.err == "" {
				want, left = newer, 0
			}
			if got := c.images(t); len(got) != 1 || got["a"] != want || len(result.Left) != left {
				t.Errorf("images %v, left %v", got, names(result.Left))
			}
			list, err := c.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 {
				t.Errorf("%d pods are there, %v: want the one with a proxy", len(list.Items), err)
			}
		})
	}
}

// Each image is tested once on each node, even if several pods of the node get it.
func TestEachNodeRunsAnImageOnce(t *testing.T) {
	t.Parallel()
	a, b, c := pod("a"), pod("b"), pod("c")
	c.Spec.NodeName = "other"
	world := newCluster(a, b, c)
	if _, err := world.run(t.Context(), due(a, b, c), nil); err != nil {
		t.Fatal(err)
	}
	ran := slices.DeleteFunc(slices.Clone(world.lines), func(l string) bool { return !strings.Contains(l, " runs ") })
	if want := []string{"node runs " + newer, "other runs " + newer}; !slices.Equal(ran, want) {
		t.Errorf("%q, want %q", ran, want)
	}
}

// If the context is cancelled, replacements in progress are completed or rolled back, and no other begins.
func TestCancelled(t *testing.T) {
	for name, ready := range map[string]bool{"the new proxy gets ready": true, "it does not": false} {
		for _, at := range []string{"while it drains", "when its image is changed"} {
			t.Run(name+", "+at, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				a, b := pod("a"), pod("b")
				c := newCluster(a, b)
				if !ready {
					c.limit = short
				}
				c.kubelet = func(_ *cluster, p *corev1.Pod) {
					if runs(p); !ready && kubeclient.Proxy(p).Image == newer {
						waits(p, "CrashLoopBackOff")
					}
				}
				c.exec = func(string) (string, error) {
					if at == "while it drains" {
						cancel()
					}
					return "", nil
				}
				result, err := c.run(ctx, due(a, b), func(e Event) {
					if e.Step == Replacing {
						cancel()
					}
				})
				want := map[string]string{"a": newer, "b": older}
				if !ready {
					want["a"] = older
				}
				if diff := cmp.Diff(want, c.images(t)); diff != "" {
					t.Errorf("images (-want +got):\n%s", diff)
				}
				if got := names(result.Left); !slices.Equal(got, []string{"b"}) {
					t.Errorf("left: %v", got)
				}
				if ready && (!errors.Is(err, context.Canceled) || len(result.Replaced) != 1) {
					t.Errorf("%v, replaced %v", err, names(result.Replaced))
				}
				if !ready && (len(result.Failed) != 1 || result.Failed[0].Step != RolledBack) {
					t.Errorf("%v, failed %v", err, result.Failed)
				}
			})
		}
	}
}

// A replacement reports how long it took and which other containers restarted.
func TestReplacedWithARestart(t *testing.T) {
	t.Parallel()
	p := pod("a")
	c := newCluster(p)
	c.kubelet = func(c *cluster, p *corev1.Pod) {
		waits(p, "PodInitializing")
		later := p.DeepCopy()
		c.watched = func() {
			runs(later)
			kubeclient.Status(later, "app").RestartCount++
			if err := c.Tracker().Update(pods, later, later.Namespace); err != nil {
				t.Error(err)
			}
		}
	}
	var last Event
	if _, err := c.run(t.Context(), due(p), func(e Event) { last = e }); err != nil {
		t.Fatal(err)
	}
	if last.Step != Replaced || last.Took <= 0 || !slices.Equal(last.Restarts, []string{"app"}) {
		t.Errorf("%+v, want replaced, with a restart of app", last)
	}
}

// The status port of the agent is read from the variable PROXY_CONFIG of the proxy, or it is the default.
func TestStatusPort(t *testing.T) {
	for config, want := range map[string]string{
		"": "15020", `{"discoveryAddress":"a:1"}`: "15020", `{"statusPort":15099}`: "15099", `{"statusPort":0}`: "0", "not JSON": "15020",
	} {
		proxy := corev1.Container{Env: []corev1.EnvVar{{Name: "POD_NAME"}, {Name: "PROXY_CONFIG", Value: config}}}
		if got := statusPort(&proxy); got != want {
			t.Errorf("PROXY_CONFIG=%s: port %s, want %s", config, got, want)
		}
	}
}
