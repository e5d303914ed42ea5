package kube

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outrider.dev/internal/base/contract"
	"outrider.dev/internal/base/latest"
)

// Nodes knows on which nodes of a cluster outrider-node serves pods.
type Nodes struct {
	store   *store[nodeOffer]
	changed latest.Value[struct{}] // set when the result of Serve may have changed
}

// A nodeOffer is the state of outrider-node on a node. The zero value stands for a node that does not exist.
type nodeOffer int

const (
	otherSystem nodeOffer = iota + 1
	serves
	lacks
)

func offerOf(o metav1.Object) nodeOffer {
	switch has, matters := contract.HasNode(o.GetLabels()); {
	case !matters:
		return otherSystem
	case has:
		return serves
	}
	return lacks
}

// Nodes watches the nodes until ctx ends.
func (c *Cluster) Nodes(ctx context.Context) *Nodes {
	n := &Nodes{store: newStore(func(_ nodeOffer, o metav1.Object) nodeOffer { return offerOf(o) })}
	n.store.changed = func(_ types.NamespacedName, before, now nodeOffer, _ bool) {
		if before != now {
			n.changed.Set(struct{}{})
		}
	}
	go c.follow(ctx, feedOf("nodes", c.core.CoreV1().Nodes(), nil), n.store, nil)
	return n
}

// Serve reports whether outrider-node runs on all Linux nodes, and returns a channel that is closed
// when that may have changed. Before the first list it reports false.
func (n *Nodes) Serve() (bool, <-chan struct{}) {
	_, changed := n.changed.Get()
	var all []nodeOffer
	for _, name := range n.store.names() {
		offer, _ := n.store.get(name)
		all = append(all, offer)
	}
	return slices.Contains(all, serves) && !slices.Contains(all, lacks), changed
}

// Synced returns a channel that is closed after the first list.
func (n *Nodes) Synced() <-chan struct{} { return n.store.synced }
