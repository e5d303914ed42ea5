// Package charts contains the Helm chart of Outrider and its profiles. All objects that are applied to a
// cluster come from here.
package charts

import "embed"

// Files contains the chart in the folder outrider, and each profile, a file of values, as profiles/NAME.yaml.
//
//go:embed all:outrider profiles
var Files embed.FS
