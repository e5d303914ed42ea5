package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/base/wire"
	"outrider.dev/internal/core/agent/proxy"
	"outrider.dev/internal/core/capture/commandline"
)

// recordName is the name of a file next to the copy of this program. It shows that the root stage is done.
const recordName = "captured.json"

// newRootStage returns the command root-stage, with which the proxy's container begins in a pod
// without Outrider's init container (outrider.dev/init: none).
func newRootStage(termination *terminationLog) *cobra.Command {
	cmd, o := captureCommand(termination)
	s := &rootStage{captureOptions: o}
	cmd.Use, cmd.Aliases, cmd.Args = "root-stage --copy FILE -u UID [-g GID] [FLAGS of capture] -- COMMAND [ARG]...", nil, cobra.ArbitraryArgs
	cmd.Short = "run init, then drop all privileges and exec another subcommand"
	cmd.Long = `Does the work of a pod's init container as the first process of another container: copies this
program to --copy and captures. Then it executes COMMAND, a subcommand of this program, as the user
and group that are not captured, without capabilities for the rest of its life.

It needs root with the capabilities NET_ADMIN, SETUID, SETGID and SETPCAP. Afterwards only root can
write to the folder of --copy. If anything fails, COMMAND is not run. "captured" waits until this
stage is done.`
	cmd.Example = "  outrider-agent root-stage --copy /outrider/bin/outrider-agent -u 1337 -g 1337 -i '*' -b '*' -d 15090,15021,15020 -- proxy sidecar"
	cmd.RunE = s.run
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&s.copy, "copy", "", "where to copy this program to: a file, or an existing folder")
	cmd.Flags().Func("groups", "more groups of the command: `numbers`, separated by commas", func(text string) error {
		return parseFlag("groups", text, parseGroups, &s.groups)
	})
	return cmd
}

type rootStage struct {
	*captureOptions
	copy   string
	groups []int
}

func (s *rootStage) run(cmd *cobra.Command, args []string) error {
	if err := commandline.FinishIntent(cmd.Flags(), &s.intent); err != nil {
		return err
	}
	if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
		return noArgs(cmd, args)
	}
	user, err := s.check(args)
	if err != nil {
		return &cli.UsageError{Err: err, Hint: cmd.CommandPath() + " --help has an example"}
	}
	if err := copySelf(s.copy); err != nil {
		return err
	}
	file := copyFile(s.copy)
	// Every container of the pod runs the copy, so the unprivileged command that this process
	// becomes must not be able to change it.
	if err := os.Chmod(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("making the folder of the copy root's alone: %w", err)
	}
	ctx, cancel := limited(cmd.Context())
	defer cancel()
	report, err := s.apply(ctx, cmd)
	if err != nil {
		return err
	}
	rules, _ := report.Ruleset.Recorded()
	if err := record(rules, file); err != nil {
		return fmt.Errorf("noting that the stage is done: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return proxy.Become(user, self, append([]string{os.Args[0]}, args...), os.Environ())
}

// check checks the command line, and returns the user that the stage becomes: the proxy's, so that its
// connections are not captured.
func (s *rootStage) check(args []string) (proxy.User, error) {
	var u proxy.User
	for _, f := range []struct {
		name string
		set  bool
	}{{"dry-run", s.dryRun}, {"cleanup-only", s.cleanup}, {"skip-rule-apply", s.skipRules}, {"network-namespace", s.netns != ""}} {
		if f.set {
			return u, fmt.Errorf("--%s: the stage captures here, or it fails", f.name)
		}
	}
	switch {
	case s.copy == "":
		return u, errors.New("--copy is missing: where do the gates find this program?")
	case len(args) == 0:
		return u, errors.New("there is no command after the flags")
	case len(s.intent.ProxyUIDs) == 0:
		return u, errors.New("--proxy-uid is missing: which user does the stage become?")
	}
	ids := s.intent.ProxyGIDs
	if len(ids) == 0 {
		ids = s.intent.ProxyUIDs
	}
	u = proxy.User{UID: int(s.intent.ProxyUIDs[0]), GID: int(ids[0]), Groups: s.groups}
	if u.UID == 0 {
		return u, errors.New("--proxy-uid=0: the stage must end as a user other than root")
	}
	return u, nil
}

func parseGroups(text string) ([]int, error) {
	var out []int
	for item := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(item, 10, 32)
		if err != nil || n == math.MaxUint32 {
			return nil, fmt.Errorf("%q: want the numbers of groups, with commas between", text)
		}
		out = append(out, int(n))
	}
	return out, nil
}

func record(rules, file string) error {
	r, err := proxy.NewStageRecord(rules)
	if err != nil {
		return err
	}
	return r.Write(recordOf(file))
}

func recordOf(file string) string { return filepath.Join(filepath.Dir(file), recordName) }

// capturedLimit is the time for which the hook waits. It is longer than captureLimit, so that a failed stage
// reports the reason before the hook gives up.
const capturedLimit = captureLimit + 10*time.Second

// newCaptured returns the command captured, the postStart hook of a container that begins with a
// root stage. The kubelet starts the next container when the hook returns.
func newCaptured() *cobra.Command {
	var dest string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "captured --copy FILE",
		Short: "wait until the root stage of this container is done",
		Long: `Returns when the root stage of this start of the container has copied the program and written the
capture of this network namespace. The results of an earlier start do not count.`,
		Example: "  outrider-agent captured --copy /outrider/bin/outrider-agent",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case dest == "":
				return &cli.UsageError{Err: errors.New("--copy is missing: where does the root stage copy to?")}
			case limit <= 0:
				return &cli.UsageError{Err: fmt.Errorf("--timeout=%s: want more than 0", limit)}
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), limit, fmt.Errorf("the root stage was not done within %s", limit))
			defer cancel()
			r, err := awaitRecord(ctx, recordOf(copyFile(dest)))
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "captured: %s\n", r.Rules)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dest, "copy", "", "the root stage's --copy")
	cmd.Flags().DurationVar(&limit, "timeout", capturedLimit, "how long to wait")
	return cmd
}

// awaitRecord waits until the file holds a valid record of a root stage, and returns it.
func awaitRecord(ctx context.Context, file string) (proxy.StageRecord, error) {
	changed, stop := watch(file) // before the first read, so that no change is missed
	defer stop()
	for {
		r, err := proxy.ReadStageRecord(file)
		if err == nil {
			return r, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return r, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// watchPause is the interval at which files are polled that cannot be watched.
const watchPause = 100 * time.Millisecond

// watch returns a channel that gets a value after a change in the directory of a file. If inotify
// does not work, or the directory does not exist yet, it gets a value every watchPause.
func watch(file string) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	return c, wire.WatchFiles(watchPause, func() {
		select {
		case c <- struct{}{}:
		default:
		}
	}, file)
}
