package why

import (
	"slices"
	"strings"
)

// remedies has what is to be done about a reason, by what its message says; the first row that fits counts.
var remedies = []struct {
	says []string // in lower case
	do   string
}{
	{[]string{"exec format error"}, "use an image for the CPU of the node, or keep the pod on nodes of the image's CPU (nodeSelector kubernetes.io/arch); of a script, begin it with #!"},
	{[]string{"address already in use", "address in use", "eaddrinuse"}, "give one of the two programs that listen there another port"},
	{[]string{"out of memory", "outofmemory", "heap"}, "raise the limit of its heap together with the container's memory limit, or find out what uses the memory"},
	{[]string{"no space left", "disk space", "low disk", "low-disk", "disk full", "disk is full", "disk quota exceeded"}, "free space on the volume that it writes to, or give it more"},
	{[]string{"read-only file system"}, "mount a volume (emptyDir) where it writes, or see readOnlyRootFilesystem"},
	{[]string{"permission denied", "eacces", "operation not permitted", "eperm"}, "see the user and the rights that its securityContext gives it, and who owns what the line names"},
	{[]string{"environment variable", "env var", "keyerror", "is not set", "not configured", "is required", "are required", "missing environment", "missing required", "configuration: missing", "config: missing"}, "set what the line names, in the pod template or in the ConfigMap or Secret that it comes from"},
	{[]string{"command not found", "executable file not found", "sh: "}, "correct the command, or use an image that has it"},
	{[]string{"unknown flag", "unknown shorthand flag", "flag provided but not defined", "unknown option", "unrecognized option", "unrecognized argument", "unrecognised option", "invalid option", "no such option", "unexpected argument", "unknown command", "unknown argument"}, "correct the arguments of the container: this version of its program does not know one of them"},
	{[]string{"no such file", "enoent", "filenotfound", "cannot find module", "modulenotfound", "shared libraries", "can't locate", "no module named", "noclassdeffound", "classnotfound"}, "see whether the image, or a volume, has what the line names, under that name"},
	{[]string{"password authentication", "access denied", "authentication failed", "unauthorized", "unauthenticated", "forbidden", "invalid credentials"}, "see the credentials that it uses, and their rights"},
	{[]string{"certificate", "x509"}, "see the certificate that it was shown: its date, its names, and who signed it"},
	{[]string{"already exists"}, "remove what is there already, or let the program take it over"},
}

// Remedy returns what is to be done about a reason; empty: nothing more is known than the line itself.
func Remedy(text string) string {
	text = strings.ToLower(text)
	for _, r := range remedies {
		if slices.ContainsFunc(r.says, func(says string) bool { return strings.Contains(text, says) }) {
			return r.do
		}
	}
	return ""
}
