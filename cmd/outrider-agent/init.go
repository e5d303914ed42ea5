package main

import "github.com/spf13/cobra"

// newInit returns the command init, which the init container of an injected pod runs. Every init
// container adds 0.3 to 1 s to the pod's start, so a single one does everything: it copies this
// program for the gates, and then captures.
func newInit(termination *terminationLog) *cobra.Command {
	var dest string
	cmd, _ := captureCommand(termination)
	cmd.Use, cmd.Aliases = "init", nil
	cmd.Short = "copy this program for the gates, then capture: the command of the init container"
	cmd.Long = `Copies this program to --copy, if that is given, and then does what capture does.
The flags and variables are those of capture.`
	cmd.Example = "  outrider-agent init --copy /outrider/bin/outrider-agent -u 1337 -i '*' -b '*' -d 15090,15021,15020"
	capture := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dest != "" {
			if err := copySelf(dest); err != nil {
				return err
			}
		}
		return capture(cmd, args)
	}
	cmd.Flags().StringVar(&dest, "copy", "", "where to copy this program to: a file, or an existing folder")
	return cmd
}
