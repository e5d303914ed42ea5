package gather

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"outrider.dev/internal/doctor/evidence"
)

// configs are the kinds of objects of which only the metadata is read: when they were written.
var configs = map[string]bool{"ConfigMap": true, "Secret": true}

// addConfig adds the metadata of a ConfigMap or a Secret. Of an object that is read twice the later version counts.
func (b *bundle) addConfig(kind string, from evidence.Source, raw []byte) {
	if len(raw) > maxObject || b.held > b.most {
		return
	}
	var o metav1.PartialObjectMetadata
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil {
		b.mismatch(from, kind, nil, err) // without the raw object: an error must not quote a Secret
		return
	}
	b.held += objectSize
	c := evidence.Config{Kind: kind, Namespace: o.Namespace, Name: o.Name, Created: evidence.Second(o.CreationTimestamp.Time, evidence.APIClock), Source: from}
	for _, f := range o.ManagedFields {
		if f.Time != nil && f.Time.After(c.Written.At) {
			c.Written, c.By = evidence.Second(f.Time.Time, evidence.APIClock), f.Manager
		}
	}
	key := evidence.About(kind, o.Namespace, o.Name)
	if before, twice := b.configs[key]; twice && before.Written.At.After(c.Written.At) {
		return
	}
	b.configs[key] = c
}

// maxConfigEvents limits the events that are kept of a ConfigMap or a Secret.
const maxConfigEvents = 3

// others returns what the evidence has beside pods: the workloads, and the ConfigMaps and Secrets with their last events.
func (b *bundle) others() (owners []evidence.Owner, all []evidence.Config) {
	for _, key := range slices.Sorted(maps.Keys(b.owners)) {
		owners = append(owners, b.owners[key])
	}
	for _, e := range b.events {
		kind, namespace, name := e.Object()
		if !configs[kind] {
			continue
		}
		c, known := b.configs[e.About]
		if !known {
			c = evidence.Config{Kind: kind, Namespace: namespace, Name: name, Source: e.Source}
		}
		c.Events = append(c.Events, e.Event)
		b.configs[e.About] = c
	}
	for _, key := range slices.Sorted(maps.Keys(b.configs)) {
		c := b.configs[key]
		slices.SortStableFunc(c.Events, func(a, d evidence.Event) int { return cmp.Compare(a.Last.At.UnixNano(), d.Last.At.UnixNano()) })
		c.Events = c.Events[max(len(c.Events)-maxConfigEvents, 0):]
		all = append(all, c)
	}
	return owners, all
}
