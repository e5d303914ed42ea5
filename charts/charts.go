// Package charts holds the Helm chart of Outrider and its profiles: the one source of what is
// applied to a cluster.
package charts

import "embed"

// Files has the chart in the folder outrider, and the profiles, which are files of values, as
// profiles/NAME.yaml.
//
//go:embed all:outrider profiles
var Files embed.FS
