//go:build race

package commands

// A caller with the race detector has it in the commands too.
func init() { racing = true }
