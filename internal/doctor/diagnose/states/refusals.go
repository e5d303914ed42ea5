package states

import (
	"cmp"
	"regexp"
	"strings"

	"outrider.dev/internal/base/finding"
)

// A refusal is a row of the table of reasons why the API server does not create a pod.
type refusal struct {
	says     *regexp.Regexp // what the message says
	sentence string         // $1 and so on are the groups of says
	remedy   string
	command  string // for kubectl; {ns} is the namespace
}

// The parts of rows about a webhook that the API server does not reach: the beginning of its message, with the webhook and
// its address, the sentence, and the command that shows its configuration.
const (
	toWebhook      = `failed calling webhook "([^"]+)": (?s:.*?)(?:Post|post) "?https?://([^/"\s?]+)[^"\s]*"?: `
	notCalled      = "the API server cannot call the admission webhook $1 at $2: $3"
	configurations = "get validatingwebhookconfiguration,mutatingwebhookconfiguration"
)

// refusals has the reasons; the first whose text the message has counts. Sources: plugin/pkg/admission (resourcequota,
// limitranger, serviceaccount, priority), staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook,
// k8s.io/pod-security-admission, of Kubernetes 1.34; OpenShift's apiserver-library-go.
var refusals = []refusal{
	{
		regexp.MustCompile(`exceeded quota: ([^,\s]+), requested: (.+), used: (.+), limited: ([^,\s]+(?:,[^,\s]+)*)`),
		"quota $1 has no room left: a pod asks $2, $3 of $4 are used",
		"raise the quota, remove other pods of the namespace, or lower what the pods ask (an injected sidecar counts too); the pods are then created by themselves",
		"describe quota",
	},
	{
		regexp.MustCompile(`failed quota: ([^:\s]+): must specify (.+)`),
		"quota $1 wants each container to set $2",
		"set it in the pod template, for each container (an injected sidecar too), or give the namespace a LimitRange that has a default",
		"describe quota,limitrange",
	},
	{
		regexp.MustCompile(toWebhook + `(.*(?:certificate has expired|certificate is expired)(?:[^:]*$|.*: current time \S+ is after .+))`),
		notCalled,
		"renew the certificate with which $2 answers (its program runs; an issuer that is not renewed by itself, and the caBundle of the webhook's configuration, may have to follow); the pods are then created by themselves. Until then leave the pods that run alone: none that is deleted comes again",
		configurations,
	},
	{
		regexp.MustCompile(toWebhook + `(.*not yet valid: current time \S+ is before .+)`),
		notCalled,
		"correct the clock of the API server's machine, or of what issued the certificate of $2: it is not valid yet",
		configurations,
	},
	{
		regexp.MustCompile(toWebhook + `(.*(?:signed by unknown authority|certificate is not trusted|unable to parse bytes as PEM).*)`),
		notCalled,
		"make the caBundle of the webhook's configuration agree with the issuer of the certificate with which $2 answers: its program runs; the pods are then created by themselves",
		configurations,
	},
	{
		regexp.MustCompile(toWebhook + `(.*x509: (?:certificate is (?:not )?valid for|certificate is not valid for any names|certificate relies on legacy Common Name).*)`),
		notCalled,
		"give $2 a certificate with the name by which it is called: its program runs; the pods are then created by themselves",
		configurations,
	},
	{
		regexp.MustCompile(toWebhook + `(.+)`),
		notCalled,
		"bring back the program that answers the webhook (its pods, its Service, its endpoints); the pods are then created by themselves. Only if that takes too long, delete the webhook's configuration: pods then come without what it adds",
		configurations,
	},
	{
		regexp.MustCompile(`failed calling webhook "([^"]+)": (.+)`),
		"the API server cannot call the admission webhook $1: $2",
		"bring back the program that answers the webhook (its pods, its Service, its endpoints); the pods are then created by themselves",
		configurations,
	},
	{
		regexp.MustCompile(`admission webhook "([^"]+)" denied the request: ?(?s:(.*(?:\bdial (?:tcp|udp)\b|connect: connection refused|code = (?:Unavailable|DeadlineExceeded)\b|no such host|i/o timeout|context deadline exceeded|TLS handshake timeout).*))`),
		"the admission webhook $1 cannot answer, since what it calls itself does not: $2",
		"bring back the program that the webhook calls (the message has its address or its name; most run beside the webhook: kubectl get pods,services,endpoints of its namespace); the pods are then created by themselves. Nothing in the pod template is to be changed",
		"",
	},
	{
		regexp.MustCompile(`admission webhook "([^"]+)" denied the request: ?(?s:(.*))`),
		"the admission webhook $1 refuses the pods: $2",
		"change the pod template as the message says, or the policy of the webhook",
		"",
	},
	{
		regexp.MustCompile(`error looking up service account ([^/\s]+)/([^:\s]+): (?:serviceaccount .* not found|.*)`),
		"the service account $2 of namespace $1 does not exist",
		"create the service account $2, or correct serviceAccountName of the pod template; the pods are then created by themselves",
		"get serviceaccount",
	},
	{
		regexp.MustCompile(`violates PodSecurity "([^"]+)": (?s:(.+))`),
		"the namespace enforces pod security $1, which the pods violate: $2",
		"change the securityContext of the pod template as the message says, or the namespace's label pod-security.kubernetes.io/enforce",
		"get namespace {ns} --show-labels",
	},
	{
		regexp.MustCompile(`unable to validate against any (?:security context constraint|pod security policy): (?s:(.+))`),
		"no security context constraint allows the pods: $1",
		"give the pods' service account a constraint that allows it, or change the securityContext of the pod template",
		"",
	},
	{
		regexp.MustCompile(`((?:maximum|minimum) \S+ usage per (?:Container|Pod) is .+)`),
		"a LimitRange of the namespace does not allow the pods: $1",
		"change the requests and limits of the pod template, or the LimitRange",
		"describe limitrange",
	},
	{
		regexp.MustCompile(`(\S+) max limit to request ratio per (?:Container|Pod) is (.+)`),
		"a LimitRange of the namespace does not allow the pods: the limit of $1 may be at most so many times the request: $2",
		"change the requests and limits of the pod template, or the LimitRange",
		"describe limitrange",
	},
	{
		regexp.MustCompile(`no PriorityClass with name (\S+) was found`),
		"the PriorityClass $1 does not exist",
		"create it, or correct priorityClassName of the pod template",
		"get priorityclass",
	},
	{
		regexp.MustCompile(`RuntimeClass "?([^"\s]+)"? not found`),
		"the RuntimeClass $1 does not exist",
		"create it, or correct runtimeClassName of the pod template",
		"get runtimeclass",
	},
	{
		regexp.MustCompile(`because it is being terminated`),
		"the namespace is being deleted",
		"nothing is to be done, if that is meant; else make the namespace anew, and see what keeps this one",
		"get namespace {ns} -o yaml",
	},
	{
		regexp.MustCompile(`is invalid: (?s:(.+))`),
		"the pod template is not valid: $1",
		"correct the field of the pod template that the message names, or the webhook that changed it",
		"",
	},
	{
		regexp.MustCompile(`is forbidden: (?s:(.+))`),
		"the API server refuses them: $1",
		"change what the message names: the pod template, or the policy of the cluster",
		"",
	},
}

// Refused returns why the API server does not create pods, by its message, and what to do about that.
func Refused(message, namespace string) (string, finding.Remedy) {
	for _, r := range refusals {
		m := r.says.FindStringSubmatchIndex(message)
		if m == nil {
			continue
		}
		remedy := finding.Remedy{Sentence: string(r.says.ExpandString(nil, r.remedy, message, m))}
		if r.command != "" {
			remedy.Command = "kubectl " + strings.Join(strings.Fields(strings.ReplaceAll(r.command, "{ns}", namespace)), " ")
			if namespace != "" && !strings.Contains(r.command, "{ns}") {
				remedy.Command = "kubectl -n " + namespace + " " + r.command
			}
		}
		return string(r.says.ExpandString(nil, r.sentence, message, m)), remedy
	}
	return cmp.Or(message, "no message says why"), finding.Remedy{Sentence: "see the events of the workload (kubectl describe)"}
}
