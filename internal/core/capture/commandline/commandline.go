// Package commandline reads the intent of a capture from the flags and variables of a command. It
// is separate from package capture, so that programs that only check or write such flags need no
// command library.
package commandline

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"outrider.dev/internal/base/cli"
	"outrider.dev/internal/core/capture"
)

// IntentFlags adds the flags of an intent, each with its variables, and --output. Istio's -o
// excludes outbound ports. Since no port is called json or text, -o with one of these words means
// --output.
func IntentFlags(fs *pflag.FlagSet, in *capture.Intent, output *cli.Output) {
	*output = cli.Text
	fs.Var(output, "output", "how to print: text or json")
	for _, f := range capture.Flags(in, lookupUser, lookupGroup) {
		value := pflag.Value(f)
		if f.Short == "o" {
			value = portsOrOutput{f, output}
			f.Usage += "; -o json is --output=json"
		}
		fs.VarP(value, f.Name, f.Short, f.Usage)
		if f.IsBoolFlag() {
			fs.Lookup(f.Name).NoOptDefVal = "true"
		}
		cli.BindEnv(fs, f.Name, f.Env...)
	}
}

type portsOrOutput struct {
	*capture.Flag
	output *cli.Output
}

func (p portsOrOutput) Set(s string) error {
	if p.output.Set(s) == nil {
		return nil
	}
	return p.Flag.Set(s)
}

// FinishIntent reads the environment and checks the whole intent.
func FinishIntent(fs *pflag.FlagSet, in *capture.Intent) error {
	if err := cli.FromEnv(fs); err != nil {
		return err
	}
	if err := in.Check(); err != nil {
		return &cli.UsageError{Err: err}
	}
	if in.DNS == capture.DNSServers {
		servers, err := givenServers(fs)
		if err == nil && servers == nil {
			servers, err = nameservers("/etc/resolv.conf")
		}
		if err != nil {
			return fmt.Errorf("--redirect-dns: %w", err)
		}
		in.Nameservers = servers
	}
	return nil
}

// ServersFlag adds a flag for the DNS servers of a pod, for a command that cannot read the pod's
// resolv.conf.
func ServersFlag(fs *pflag.FlagSet) {
	const name = "nameservers"
	fs.String(name, "", "with --redirect-dns: addresses of the pod's DNS servers, instead of those of resolv.conf, separated by commas")
	fs.Lookup(name).Hidden = true // only outrider-node uses it
}

func givenServers(fs *pflag.FlagSet) (out []netip.Addr, err error) {
	given, _ := fs.GetString("nameservers") // an error means that the command does not have the flag
	if given == "" {
		return nil, nil
	}
	for text := range strings.SplitSeq(given, ",") {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, &cli.UsageError{Err: fmt.Errorf("--nameservers=%q: not an address", text)}
		}
		out = append(out, a.WithZone("").Unmap())
	}
	return out, nil
}

func lookupUser(name string) (uint32, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	return numberOf(u.Uid)
}

func lookupGroup(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return numberOf(g.Gid)
}

func numberOf(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// nameservers reads the servers in a resolv.conf (man 5 resolv.conf). Like the resolver, it skips
// lines that it does not understand.
func nameservers(path string) ([]netip.Addr, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []netip.Addr
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil {
			out = append(out, a.WithZone("").Unmap())
		}
	}
	return out, lines.Err()
}
