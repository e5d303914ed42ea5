package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"outrider.dev/internal/base/contract"
)

// Serve reports true while outrider-node runs on each Linux node.
func TestNodesServe(t *testing.T) {
	node := func(name, system string, serves bool) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: system}}}
		if serves {
			n.Labels[contract.NodeLabel] = contract.NodeInstalled
		}
		return n
	}
	c, _ := serving("", node("a", "linux", true), node("win", "windows", false))
	core := c.core.(*fake.Clientset)
	watching := watches(core, "nodes", "")
	ctx := t.Context()
	n := c.Nodes(ctx)
	<-n.Synced()
	<-watching
	serve, changed := n.Serve()
	if !serve {
		t.Error("a node with Windows counts")
	}
	nodes := core.CoreV1().Nodes()
	for _, step := range []struct {
		what string
		do   func() error
		want bool
	}{
		{"one joins without", func() error { _, err := nodes.Create(ctx, node("b", "", false), metav1.CreateOptions{}); return err }, false},
		{"it gets it", func() error {
			_, err := nodes.Update(ctx, node("b", "linux", true), metav1.UpdateOptions{})
			return err
		}, true},
		{"one loses it", func() error {
			_, err := nodes.Update(ctx, node("a", "linux", false), metav1.UpdateOptions{})
			return err
		}, false},
		{"that one leaves", func() error { return nodes.Delete(ctx, "a", metav1.DeleteOptions{}) }, true},
		{"the last one leaves", func() error { return nodes.Delete(ctx, "b", metav1.DeleteOptions{}) }, false},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		<-changed
		if serve, changed = n.Serve(); serve != step.want {
			t.Errorf("%s: %t", step.what, serve)
		}
	}
}
