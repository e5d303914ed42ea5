package operate

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/cmd/internal/target"
	"outrider.dev/cmd/internal/view"
	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/ops/rotate"
)

const rotateExamples = `  # begin, and wait until the next root is in all namespaces
  outrider rotate

  # how far is it?
  outrider rotate status

  # follow it to its end, some 26 hours later
  outrider rotate --until retired --timeout 30h`

func NewRotate() *cobra.Command {
	o := &target.ControlPlane{}
	var until string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "replace the mesh's root without an interruption",
		Long: `Makes the control plane replace its root. First the next root is published: every proxy trusts it.
It signs certificates after authority.rootSpread; with Hosts in the mesh, after the longest lifetime
of a certificate. The old root stays trusted until the last certificate that it signed has expired.

The replicas of the control plane take these steps whether this command runs or not. If a rotation
is under way already, this command follows it and begins no other one.

Only a root that outriderd created is rotated. Rotate your own root (cacerts, cert-manager) at its
source.

Exit status: 0 if the step is reached, 1 if not, 2 if the input is unusable.`,
		Example: rotateExamples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.Connect(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			status, err := rotate.Run(ctx, client, until)
			client.Progress.End()
			if err != nil {
				return err
			}
			return view.Rotation(cmd.OutOrStdout(), "table", status)
		},
	}
	o.Add(cmd)
	cli.Choice(cmd, &until, "until", "", "the step to wait for", rotate.Steps...)
	target.Timeout(cmd, &timeout, 5*time.Minute, "how long to wait at most; the rotation goes on nevertheless")
	cmd.AddCommand(newRotateStatus())
	return cmd
}

func newRotateStatus() *cobra.Command {
	o := &target.ControlPlane{}
	var output string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "print the mesh's roots, and how far a rotation is",
		Long:    "Prints each root with its fingerprint (SHA-256), its expiry and its part in a rotation. Nothing is changed.",
		Example: "  outrider rotate status -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.Connect(cmd)
			if err != nil {
				return err
			}
			status, err := rotate.Status(cmd.Context(), client)
			if err != nil {
				return err
			}
			return view.Rotation(cmd.OutOrStdout(), output, status)
		},
	}
	o.Add(cmd)
	cli.Choice(cmd, &output, "output", "o", "how to print", "table", "json")
	return cmd
}
