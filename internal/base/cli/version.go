package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Package build/commands sets these at link time, to the tag or revision of the commit and the commit's time.
var build, buildTime string

// Version returns the version of the command: the tag or revision that the build has set, or else the module's
// version or commit as the go command recorded it.
func Version() string {
	v, _ := buildOf()
	return v
}

// buildOf returns the version, and the time of the commit; an unknown time is empty.
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

// A Build describes how a command was built: from which version of the source, with which Go, and for which
// platform.
type Build struct {
	Version  string `json:"version"`
	Time     string `json:"time,omitempty"` // of the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ThisBuild returns the Build of the running command.
func ThisBuild() Build {
	version, when := buildOf()
	return Build{version, when, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
}

func (b Build) String() string {
	version := b.Version
	if b.Time != "" {
		version += " of " + b.Time
	}
	return fmt.Sprintf("%s (%s, %s)", version, b.Go, b.Platform)
}

// VersionCommand returns the command that prints the version.
func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Long:  "Prints the version, the time of its commit, the Go version and the platform.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", cmd.Root().Name(), ThisBuild())
			return err
		},
	}
}
