// Package charts contains the Helm chart of Outrider and its profiles. All objects that are applied to a
// cluster come from here.
package charts

import "embed"

// Files contains the chart in the folder outrider, and each profile as profiles/NAME.yaml, which is a file of
// values.
//
//go:embed all:outrider profiles
var Files embed.FS
