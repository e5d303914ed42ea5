package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Set by the build (package build/commands): the tag or revision of the commit and its time.
var build, buildTime string

// Version is the version of the module, or else the commit that it was built from.
func Version() string {
	v, _ := buildOf()
	return v
}

// buildOf returns the version and the time of the commit; the time is empty if unknown.
func buildOf() (version, when string) {
	if build != "" {
		return build, buildTime
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", ""
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	switch {
	case info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version, settings["vcs.time"]
	case revision == "":
		return "devel", ""
	}
	version = "devel-" + revision[:min(12, len(revision))]
	if settings["vcs.modified"] == "true" {
		version += "-dirty"
	}
	return version, settings["vcs.time"]
}

// VersionCommand prints the version.
func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Long:  "Prints the version, the time of its commit, the Go version and the platform.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			version, when := buildOf()
			if when != "" {
				version += " of " + when
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s (%s, %s/%s)\n", cmd.Root().Name(), version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
