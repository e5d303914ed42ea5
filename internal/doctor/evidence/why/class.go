package why

import (
	"cmp"
	"regexp"
	"strings"
)

// A class is a row of the table of reasons: what messages of the class say, and what is to be done about them.
type class struct {
	name   string // of classes that others ask for
	form   *regexp.Regexp
	object *regexp.Regexp // finds what the message is about; nil: the groups of form do
	do     string         // the advice, if the object is known: it takes the place of OBJECT
	plain  string         // the advice, if it is not; empty: none
}

// ofCertificates is the name of the classes about a certificate that is refused.
const ofCertificates = "certificate"

// The objects that messages of several classes name.
var (
	aFile     = regexp.MustCompile(`(?:^|[\s"'` + "`" + `(=:])((?:/[\w.@+-]+)+/?)`)
	anAddress = regexp.MustCompile(`\b((?:\d{1,3}(?:\.\d{1,3}){3}|[a-z][\w-]*(?:\.[a-z][\w-]*)*):\d{2,5})\b`)
	aPort     = regexp.MustCompile(`(?i)(?:\bport |:)(\d{2,5})\b`)
	aName     = regexp.MustCompile(`(?:^|[^\w$])([A-Z][A-Z0-9]*_[A-Z0-9_]*[A-Z0-9])\b|\b([A-Z][A-Z0-9]{2,}):? (?:unbound|parameter|is (?:not set|required|missing)|must be set)|(?:KeyError|key not found|variable):? ["']([A-Z][A-Z0-9]+)["']`)
)

// classes has the reasons that programs of every kind give. The first row that fits a message counts, so a row about a
// cause comes before those about what it leads to.
var classes = []class{
	{form: of(`exec format error`), plain: "use an image for the CPU of the node, or keep the pod on nodes of the image's CPU (nodeSelector kubernetes.io/arch); of a script, begin it with #!"},
	{form: of(`address (?:is )?(?:already )?in use|eaddrinuse|\bport \d+,? .{0,12}(?:already )?in use`), object: aPort,
		do: "give one of the two programs that listen at port OBJECT another port", plain: "give one of the two programs that listen there another port"},
	{form: of(`\[2002\] No such file|mysqli\w*: No such file|(?:through|on) (?:unix )?socket '([^']*mysql[^']*)'`),
		do:    "set the host that it calls to 127.0.0.1: with the name localhost a client of MySQL calls the unix socket OBJECT, and not TCP",
		plain: "set the host that it calls to 127.0.0.1: with the name localhost a client of MySQL calls a unix socket, and not TCP"},
	{form: of(`socket ["']([^"']*\.s\.PGSQL[^"']*)["']`), do: "give it the host of the server (PGHOST, host=): without one a client of PostgreSQL calls the unix socket OBJECT"},
	{form: of(`iptables.{0,80}\(legacy\)|iptables who\?|need to insmod|unable to initialize table|can't initialize ip6?tables table`),
		plain: "use the iptables of nftables in the init container (Linkerd: proxyInit.iptablesMode=nft), or load the module ip_tables on the node, or let the CNI plugin of the mesh write the rules: the node does not offer the tables of legacy iptables"},
	{form: of(`out of memory|outofmemory|heap (?:limit|space|size)|cannot allocate memory`), plain: "raise the limit of its heap together with the container's memory limit, or find out what uses the memory"},
	{form: of(`no space left|disk space|low[ -]disk|disk (?:is )?full|disk quota exceeded`), plain: "free space on the volume that it writes to, or give it more"},
	{form: of(`read-only file system`), object: aFile, do: "mount a volume (emptyDir) where it writes OBJECT, or see readOnlyRootFilesystem", plain: "mount a volume (emptyDir) where it writes, or see readOnlyRootFilesystem"},
	{form: of(`(?:unknown|unrecogni[sz]ed|invalid|illegal|unexpected|no such|unsupported|ambiguous) (?:long |shorthand |short |vm )?(?:flag|option|argument|switch)s?:? *["'` + "`" + `]?(--?[a-z][\w.-]*|(?-i:Use[A-Z]\w+))|(?:illegal|invalid|unrecognized) option -- ['"]?(\w)|provided but not defined: (-[\w.-]+)|unrecognized feature gate:? (\w+)|unknown (?:sub)?command:? ["']([^"']+)["']`),
		do: "take OBJECT out of the arguments of the container, or correct it: this version of the program does not know it"},
	{form: of(`unknown (?:shorthand )?flag|flag provided but not defined|unrecognized argument|unexpected argument|unknown (?:argument|command)`),
		plain: "correct the arguments of the container: this version of its program does not know one of them"},
	{form: of(`(?:required (?:argument|option|flag)s?|arguments are required|missing option)[^-]{0,40}(--?[\w-]+)`), do: "give the container the argument OBJECT"},
	{form: regexp.MustCompile(`(?i:KeyError|key not found|unbound variable|parameter (?:null or )?not set|environment|env var|is not set|not configured|is required|are required|missing|must be set|undefined|not defined|is empty)`), object: aName,
		do: "set OBJECT, in the pod template or in the ConfigMap or Secret that it comes from"},
	{form: of(`no configuration setting found for key ["']([^"']+)["']|missing required configuration ["']([^"']+)["']|(?:config )?(?:property|setting|key) ["']?([\w.-]+)["']? (?:is (?:required|missing|not (?:defined|set)|undefined)|not found)|missing (?:required )?(?:field|key|property|setting)s?:? ["'` + "`" + `]?([\w.-]*\w)|["']([\w.-]+)["'] parameter is required`),
		do: "give OBJECT a value in the configuration of the program"},
	{form: of(`unbound variable|parameter (?:null or )?not set|environment variable|env var|keyerror|is not set|not configured|is required|are required|missing environment|missing required|configuration: missing|config: missing|field required`),
		plain: "set what the line names, in the pod template or in the ConfigMap or Secret that it comes from"},
	{name: ofCertificates, form: of(`(?:invalid )?peer certificate: (?:expired|certexpired)|certificate (?:has |is )?expired|expired certificate|certexpired|certificate is not yet valid|certnotvalidyet`), plain: "renew the certificate that it was shown, or correct the clock: its validity does not include now"},
	{name: ofCertificates, form: of(`(?:(?:invalid )?peer certificate: )?(?:badsignature|unknownissuer|unknown authority|unable to get (?:local )?issuer|self[- ]?signed certificate|certification path|\bpkix\b|unknown ca\b|certificate_verify_failed|verify the first certificate)`),
		plain: "make the roots that it trusts agree with the issuer of the certificate that it was shown: no root that it has signed the certificate"},
	{name: ofCertificates, form: of(`(?:(?:invalid )?peer certificate: )?(?:notvalidforname|not valid for any names|certificate is (?:not )?valid for|match any of the subject|hostname mismatch|ip sans)`), plain: "call the peer by a name that its certificate has, or give it a certificate with that name"},
	{name: ofCertificates, form: of(`peer certificate|ssl certificate|tls.{0,30}certificate|\bx509\b|bad certificate|certificate (?:verify|required|unknown|rejected)`), plain: "see the certificate that it was shown: its date, its names, and who signed it"},
	{form: of(`checksum|check sum`), plain: "restore the migration as it was applied; if its change is meant, correct the checksum that is recorded: it was edited after it ran"},
	{form: of(`more recent version of the java|unsupportedclassversion`), plain: "use an image with a later version of Java, or compile for the version that it has"},
	{form: of(`cannot downgrade|incompatible with (?:the )?server|not compatible with this version|wrong mongod version|version mismatch|server version: `), plain: "use the version of the program that fits the data or the server, or migrate them first"},
	{form: assertion, plain: "correct what the failed test tests, or the test"},
	{form: of(`(?:cannot|not allowed to) (\w+ resource "[^"]+")`), do: "allow its ServiceAccount by RBAC (Role and RoleBinding): OBJECT"},
	{form: of(`service ?account.{0,40}not (?:authorized|allowed|bound)`), plain: "see the credentials: give the pod the ServiceAccount that the role allows (serviceAccountName), or allow its ServiceAccount in the role"},
	{form: of(`(?:authentication failed|access denied|login failed) for (?:user )?["']?([\w.-]+)`), do: "see the credentials of OBJECT that it uses, and their rights"},
	{form: of(`password authentication|access ?denied|authentication fail|unauthori[sz]ed|not authorized|unauthenticated|forbidden|invalid (?:credentials|password|token|api key)|login failed|40[13]\b.*permission denied|wrongpass|noauth`), plain: "see the credentials that it uses, and their rights"},
	{form: of(`(?:unknown|unrecogni[sz]ed|invalid|undefined|unsupported|bad|no such) (?:configuration |config )?(?:directive|keyword|field|key|option|setting|variable|variant|property|section|parameter|type|command|block|element|attribute)s?\b:? *\[?["'` + "`" + `]*([\w.$/-]*\w)|` +
		`field (\S+) not found in type|field not found, node: (\S+)|section ["']([^"']+)["'] is not valid|argument named "([^"]+)" is not expected|remove properties \[([^\]]+)\]|to set (\S+), but there is no setting|@ ([\w.]+): cannot find field|fields \["?([^"\]]+)"?\], but they were not used|>>> ["']([^"']+)["']|invalid value for (?:key |option |setting )?["']([^"'-][^"']*)["']`),
		do: "correct \"OBJECT\" in its configuration: this version of the program does not take it"},
	{form: of(`syntax error (?:on|in|at|near)\b|parse error|unexpected token|invalid character|cannot unmarshal|(?:^|\s)yaml: |has unknown fields|bad directive`), plain: "correct its configuration at the place that the line names"},
	{form: of(`exec: "([^"/ ]+)": executable file not found|(?:^|[\s/])([\w.+-]+): (?:command )?not found$`), do: "correct the command OBJECT, or use an image that has it"},
	{form: of(`command not found|executable file not found`), plain: "correct the command, or use an image that has it"},
	{form: of(`(?:no module named|cannot find module|no package called|resolve|classnotfoundexception:|noclassdeffounderror:|can't locate|cannot load such file --|export named) ["'‘` + "`" + `]?([\w@./:-]*\w)`), do: "see whether the image has OBJECT, under that name"},
	{form: of(`permission denied|eacces|operation not permitted|\beperm\b|must be owned by|wrong ownership`), object: aFile,
		do: "see the user and the rights that its securityContext gives it (runAsUser, fsGroup), and who owns OBJECT", plain: "see the user and the rights that its securityContext gives it, and who owns what the line names"},
	{form: of(`no such file|enoent|file ?not ?found|shared libraries|does not exist \(no such|unable to (?:access|read)|(?:failed to|cannot|could not|unable to) find (?:\w+ )?/|could not find or access`), object: anyOf(aFile, of(`([\w-]+\.(?:ya?ml|json|toml|conf|ini|cfg|xml|properties|env|pem|crt|key|j2|so[.\d]*)): `)),
		do: "see whether the image, or a volume, has OBJECT", plain: "see whether the image, or a volume, has what the line names, under that name"},
	{form: of(`host not found in upstream "([^"]+)"|could not resolve host:? (\S+)`), do: "see whether there is a Service OBJECT, under that name and in that namespace"},
	{form: of(`\b((?:secret|configmap|service ?account|namespace|service)s?(?: [\w.-]+/| )"[\w.-]+") not found`), do: "make OBJECT, in the namespace in which the program looks for it, or correct its name"},
	{form: of(`cannot assign requested address`), plain: "let it listen at an address that the pod has: 0.0.0.0, [::] or 127.0.0.1"},
	{form: of(`(?:relation|table|column|index|database|role|type) ["` + "`" + `]?([\w.]+)["` + "`" + `]? .{0,30}?already exists`), do: "remove OBJECT, or let the program take it over: it is there already"},
}

// advised has reasons from which advice follows, though a line is none the better for them: a call that fails may be got
// over, and each fault in a program has words of its own.
var advised = []class{
	{form: of(`connection .{0,80}refused|refused .{0,20}connection|econnrefused|connection reset|econnreset|closed the connection|connection (?:was )?closed|unexpected eof|end of file reached|socket hang up`), object: anAddress,
		do: "see whether OBJECT runs and answers, and let the program try again for a while", plain: "see whether what it calls runs and answers, and let the program try again for a while"},
	{form: of(`timed? ?out|deadline exceeded|no route to host|host unreachable|network is unreachable`), object: anAddress,
		do: "see whether OBJECT answers, and whether a NetworkPolicy or a firewall lets the pod reach it", plain: "see whether what it calls answers, and whether a NetworkPolicy or a firewall lets the pod reach it"},
	{form: regexp.MustCompile(`index out of (?:range|bounds)|nil (?:map|pointer)|NullPointer|\b(?:TypeError|NoMethodError|AttributeError|NameError|ReferenceError|IndexError|ZeroDivisionError|DivisionByZeroError|ClassCastException|NullReferenceException)\b|undefined (?:value|method)|(?i:segmentation fault|assert failure|panicked at|deadlock|divi(?:de|sion) by zero)|called .Option::unwrap`),
		plain: "it is a fault in the program, at the place that its stack trace names: run an earlier version until it is mended"},
}

func of(form string) *regexp.Regexp { return regexp.MustCompile(`(?i)` + form) }

func anyOf(a, b *regexp.Regexp) *regexp.Regexp {
	return regexp.MustCompile(a.String() + `|` + b.String())
}

// assertion matches what runners of tests say of a test that failed.
var assertion = regexp.MustCompile(`\bAssert\w*(?:Error|Failed\w*|Exception)\b|\bAssert\.\w+\(\)|\bexpect(?:ed)?\b\(?.{1,80}(?:\bto\b|\bbut\b|\.to|toBe|toEqual)|Failed asserting that|^--- FAIL: |\bFAILED \S+::|^rspec \S+ # |Failure/Error: |assertion .*failed|^not ok \d|:\d+: got .* want |- assert `)

// Failed reports whether a reason is a test that failed.
func Failed(text string) bool { return assertion.MatchString(text) }

// objectOf returns what a message that fits a class is about; empty: it does not say.
func (c *class) objectOf(text string, groups []string) string {
	if c.object == nil {
		return cmp.Or(groups[1:]...)
	}
	found := ""
	for _, m := range c.object.FindAllStringSubmatchIndex(text, 8) {
		for g := 2; g < len(m); g += 2 {
			if m[g] >= 0 && !ofCode.MatchString(text[:m[g]]) {
				found = text[m[g]:m[g+1]]
			}
		}
	}
	return found
}

// ofCode matches what is before the place in the program's own code.
var ofCode = regexp.MustCompile(`\b(?:in|at|line) ["'(]?$`)

// fits reports whether a message is of the class, and returns what the message is about.
func (c *class) fits(text string) (object string, fits bool) {
	if m := c.form.FindStringSubmatch(text); m != nil {
		object = c.objectOf(text, m)
		return object, object != "" || c.plain != ""
	}
	return "", false
}

// classOf returns the class of a message, and what the message is about. It returns nil if no class fits.
func classOf(text string) (*class, string) { return classIn(classes, text) }

func classIn(table []class, text string) (*class, string) {
	for i := range table {
		if object, fits := table[i].fits(text); fits {
			return &table[i], object
		}
	}
	return nil, ""
}

// trailing matches the fields after a message.
var trailing = regexp.MustCompile(`["}]?\s+[\w.]+=\S.*$`)

// OfCertificate returns the part of a message that says why a certificate was refused; empty: it says nothing of one.
func OfCertificate(text string) string {
	if c, _ := classOf(text); c == nil || c.name != ofCertificates {
		return ""
	}
	part := []rune(text)[max(reasonIn(text), 0):]
	return Cut(strings.TrimRight(trailing.ReplaceAllString(string(part), ""), `"' `), most/2)
}

// Remedy returns what is to be done about a reason; empty: nothing more is known than the line itself.
func Remedy(text string) string {
	c, object := classOf(text)
	if c == nil {
		c, object = classIn(advised, text)
	}
	switch {
	case c == nil:
		return ""
	case object == "" || c.do == "":
		return c.plain
	}
	return strings.ReplaceAll(c.do, "OBJECT", object)
}
