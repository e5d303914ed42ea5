// Package images tests the container images. It builds all of them, in the nightly run twice, and checks
// that each contains everything that its programs need.
package images
