//go:build race

package commands

// If this program has the race detector, the commands get it too.
func init() { racing = true }
