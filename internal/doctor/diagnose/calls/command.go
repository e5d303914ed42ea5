package calls

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"outrider.dev/internal/core/pod/podspec"
	"outrider.dev/internal/core/pod/shell"
	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/evidence"
)

// hostAndPort matches the last words of a command line that has a host and a port as words of their own, as nc has.
var hostAndPort = regexp.MustCompile(`(?i)\s([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)\s+(\d{1,5})$`)

// fromCommand returns the destination for which a container waits, with a quote, if its command does nothing but wait for
// that one.
func fromCommand(p *evidence.Pod, container string, secrets bool) (to doctor.Destination, command *evidence.Quote) {
	spec := p.Spec(container)
	if spec == nil {
		return to, nil
	}
	all := shell.Awaits(podspec.BehindGate(spec))
	if len(all) != 1 {
		return to, nil
	}
	if m := hostAndPort.FindStringSubmatch(all[0]); m != nil {
		port, err := strconv.ParseUint(m[2], 10, 16)
		if err != nil {
			return to, nil
		}
		to = doctor.Destination{Host: strings.ToLower(m[1]), Port: uint16(port)}
	}
	for _, e := range endpoints(all[0]) {
		if to.Known() && to != e.Destination {
			return doctor.Destination{}, nil
		}
		to = e.Destination
	}
	if !to.Known() || to.Port == 0 {
		return doctor.Destination{}, nil
	}
	return to, &evidence.Quote{Source: p.Source, Text: evidence.Show(fmt.Appendf(nil, "the command of %s does nothing but wait until %q succeeds", container, all[0]), secrets)}
}

// nameIt returns the destination of a call of which a log has only the address, with the name and the port for which the
// container waits.
func nameIt(to, awaited doctor.Destination) doctor.Destination {
	if isAddress(to.Host) && to.Name == "" && awaited.Known() && !isAddress(awaited.Host) && !to.Loopback() && (to.Port == 0 || to.Port == awaited.Port) {
		to.Name, to.Port = awaited.Host, awaited.Port
	}
	return to
}
