//go:build race

package commands

// This file is compiled only with the race detector. The commands then get it too.
func init() { racing = true }
