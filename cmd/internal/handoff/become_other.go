//go:build !unix

package handoff

func become(file string, args []string) error { return child(file, args) }
