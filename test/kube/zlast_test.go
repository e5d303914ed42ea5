package kube

import "testing"

// The last test, by the name of its file: another suite may have the cluster after this one.
func TestNothingIsLeft(t *testing.T) {
	enterWorld(t).vacate(t)
}
