// Package images tests the container images: it builds them all from the real parts, in the nightly
// run twice, and checks that each contains what its programs need.
package images
