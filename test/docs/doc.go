// Package docs holds the test that runs the commands of README.md and docs/.
package docs
