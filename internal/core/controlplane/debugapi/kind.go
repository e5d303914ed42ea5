package debugapi

import (
	"fmt"
	"slices"
	"strings"
)

// A Kind is a group of resource types, with the name that commands use.
type Kind struct {
	Name  string
	types []string // type URLs; nil: all types
}

var kinds = []Kind{
	{"clusters", []string{"Cluster"}},
	{"listeners", []string{"Listener"}},
	{"endpoints", []string{"ClusterLoadAssignment"}},
	{"routes", []string{"RouteConfiguration", "ScopedRouteConfiguration", "VirtualHost"}},
	{"all", nil},
}

// KindNames returns the names of all kinds.
func KindNames() []string {
	var out []string
	for _, k := range kinds {
		out = append(out, k.Name)
	}
	return out
}

// ParseKind returns the kind with a name, in the plural or the singular. An empty name means all kinds. It
// fails for other names.
func ParseKind(name string) (Kind, error) {
	if name == "" {
		name = "all"
	}
	for _, k := range kinds {
		if k.Name == name || strings.TrimSuffix(k.Name, "s") == name {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("%q: must be one of %s", name, strings.Join(KindNames(), ", "))
}

// Select returns the resources of the kind. It may overwrite the slice all.
func (k Kind) Select(all []Resource) []Resource {
	if k.types == nil {
		return all
	}
	return slices.DeleteFunc(all, func(r Resource) bool { return !slices.Contains(k.types, r.Type) })
}
