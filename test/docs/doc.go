// Package docs runs the commands of README.md and docs/, and checks the claims and links of the pages.
package docs
