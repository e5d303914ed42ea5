package mask

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// A kind is the condition under which a word makes a name secret: its position in the name, and sometimes the
// other words.
type kind int

const (
	part   kind = iota // anywhere in the name: PGPASSWORD, password2
	whole              // as a whole word: db_pw
	pass               // as the last word: smtp_pass, but not proxy_pass; on its own only if the value looks secret
	weak               // as the last word, if the value looks secret: auth, sig
	key                // as the last word, depending on the word before it: apiKey, but not topologyKey
	header             // as the last word; the rest of the line is then secret
	phrase             // anywhere in the name; the rest of the line is then secret
)

// nameWords lists the words of each kind, in lower case.
var nameWords = [...]string{
	part:   "passw passcode pwd secret token credential dockerconfig dockercfg jsessionid phpsessid aspsession privatekey accesskey apikey",
	whole:  "pw psw pswd cred creds connectionstring connstr auths",
	pass:   "pass",
	weak:   "auth sig signature sid sess session sessionid session_id hmac dsn jwt otp totp",
	key:    "key",
	header: "authorization cookie",
	phrase: "phrase mnemonic",
}

// A name is secret if a word of owners precedes "key", or a word of phrases precedes "phrase". It is not secret
// if a word of benign precedes "key", or a word of passing precedes "pass".
var (
	owners  = strings.Fields("api private access signing encryption secret account master licence license shared hmac aes ssh deploy consumer admin webhook instrumentation ingestion subscription stripe client application app sas jwt session root enc encrypt auth authentication")
	benign  = strings.Fields("public primary foreign partition routing sort cache label topology index object group map lookup idempotency registry row hash host field node config message event state sub unique natural ref name")
	phrases = strings.Fields("pass seed recovery backup secret mnemonic")
	passing = strings.Fields("proxy fastcgi uwsgi scgi grpc memcached first second third last multi two one single by all test")
)

// Degrees of certainty that a name or a value is secret.
const (
	no = iota
	perhaps
	sure
)

var (
	// about matches the ends of names for properties of a secret, such as its path, its type or its lifetime.
	about = regexp.MustCompile(`(?:(?i:[_.-](?:files?|paths?|dir|names?|namespace|refs?|ttl|url|uri|type|policy|length|size|count|expiry|seconds|enabled|audience|issuer|format|version|class|provider))|[a-z](?:File|Path|Dir|Name|Namespace|Refs?|TTL|URL|Type|Policy|Length|Seconds|Enabled|Class|Provider))$`)
	// ofFile matches what may follow the path of a file: what the system says that happened to it.
	ofFile = regexp.MustCompile(`^["']?: (?i:(?:open|l?stat|read|write|mkdir|chmod|chown|unlink|rename) /|no such file|permission denied|is a directory|not a directory|file exists|read-only file system|operation not permitted|input/output error|too many open files)`)
	// itself matches the ends of names for a secret itself, such as token. Names such as tokenTTL or secretFor do
	// not match: their values are a number and an object.
	itself = regexp.MustCompile(`(?i)(?:passw(?:or)?d|passphrase|pass|pwd|pw|pin|otp|secret|token|credential|key|auth)s?$`)
	// lastWord matches what may follow the word that makes a name secret.
	lastWord = regexp.MustCompile(`^[_.-]*(?:data|b64|base64|hex|value|string|\d*)$`)
)

// longestName is the maximum number of bytes of a name on each side of a hint.
const longestName = 64

// secretName returns no, perhaps or sure: the certainty that the name from l to r, with the hint h at i, is
// secret.
func secretName(b []byte, l, i, r int, h hint) int {
	name, end := b[l:r], i+len(h.text)
	before := bytes.ToLower(bytes.TrimRight(b[max(0, i-24):i], "_-. "))
	after := func(words []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return bytes.HasSuffix(before, []byte(w)) })
	}
	last, alone := lastWord.Match(bytes.ToLower(b[end:r])), len(bytes.Trim(b[l:i], "-_.")) == 0
	secret := perhaps
	switch {
	case h.kind == part, h.kind == key && last && after(owners), h.kind == phrase && (h.text != "phrase" || after(phrases)):
		secret = sure
	case !isBound(b, l, i) || !isBound(b, l, end), h.kind != whole && !last, h.kind == phrase:
		return no
	case h.kind == whole, h.kind == header, l > 0 && (b[l-1] == '?' || b[l-1] == '&'): // the name is in a URL's query
		secret = sure
	case h.kind == pass && after(passing), h.kind == key && (alone || bytes.ContainsFunc(name, isLower) || after(benign)):
		return no
	case h.kind == pass && !alone:
		secret = sure
	}
	if about.Match(name) || slices.Contains(noSecrets, string(name[1+bytes.LastIndexByte(name, '.'):])) {
		return no
	}
	if l > 0 && b[l-1] == '/' && ofFile.Match(b[r:min(len(b), r+40)]) {
		return no
	}
	return secret
}

// isBound reports whether a word begins or ends at i, in a name that begins at l. Words are separated by signs,
// digits or case, as in db_pw or dbPw.
func isBound(b []byte, l, i int) bool {
	if i <= l || i >= len(b) || !isAlnum(b[i-1]) || !isAlnum(b[i]) || b[i] <= '9' {
		return true
	}
	return isUpper(b[i]) && (!isUpper(b[i-1]) || i+1 < len(b) && isLower(rune(b[i+1])))
}

// secretField returns the certainty that a field of an object, or a variable, with this name is secret.
func secretField(name string) int {
	b, most := []byte(name), no
	for i := 0; i+1 < len(b); i++ {
		for _, h := range table().at(b, i) {
			if h.form == nil && h.begins(b[i:]) {
				most = max(most, secretName(b, max(0, i-longestName), i, min(len(b), i+longestName), h))
			}
		}
	}
	return most
}

var (
	// separator matches the text between a name and its value. The groups are: a quote that ends the name; an
	// assignment such as "="; a comma; and words or signs as in a sentence.
	separator = regexp.MustCompile("^(\\\\*[\"'`]|&quot;|&#3[49];|%2[27])?[\\])]?(?:" +
		`((?:[ \t]+(?:is|was))?(?:[ \t]|%20)*(?:[=-]+>|:?(?:=[ \t]*)+|:|[→⇒≔]|%3[DdAa]|\\u003[DdAa]|&#61;)(?:[ \t]|%20)*|(?:[ \t]*,)?\s*\\*["']?[Vv]alue\\*["']?[ \t]*[:=][ \t]*)` +
		`|([ \t]*,[ \t]*\\*["'` + "`" + `])|([ \t]+(?:for|of|to)(?:[ \t]+[\w'@-]+){1,3}[ \t]*[:=][ \t]*|\([\w'@-]+\)[ \t]*[:=][ \t]*|[ \t]*[|│(\[{][ \t]*|[ \t]*(?:[~/;,-]+|::)[ \t]+|[ \t]+(?:(?:is|was|as|set to|changed to)[ \t]+)?))`)
	// tagBegin and tagEnd match the surroundings of a name that is an XML tag or an attribute in one.
	tagBegin, tagEnd = regexp.MustCompile(`<(?:\w+:|[^<>\n]*["'])?$`), regexp.MustCompile(`^["']?(?:[ \t][^<>\n]*)?>(?:<!\[CDATA\[)?([^<]+)`)
)

// named returns the position of the value after the name that contains the hint h at i; nil if the name is not
// secret or has no secret value.
func named(b []byte, i int, h hint) []span {
	l, r := i, i+len(h.text)
	for l > 0 && i-l < longestName && isName(b[l-1]) {
		l--
	}
	r += len(bytes.TrimRight(b[r:r+run(b[r:min(len(b), r+longestName)], isName)], "-."))
	secret := secretName(b, l, i, r, h)
	if secret == no {
		return nil
	}
	if tag := tagEnd.FindSubmatchIndex(b[r:min(len(b), r+reach)]); tag != nil && tagBegin.Match(b[max(0, l-longestName):l]) {
		return []span{{r + tag[2], r + tag[3]}}
	}
	m := separator.FindSubmatchIndex(b[r:min(len(b), r+2*longestName)])
	if m == nil {
		return nil
	}
	group := func(n int) []byte { return b[r+max(0, m[2*n]) : r+max(0, m[2*n+1])] }
	v := value{b: b, line: l, from: r + m[1], rest: h.kind == header || h.kind == phrase, itself: itself.Match(b[l:r])}
	if l > 0 && v.rest {
		v.quote = b[l-1]
	}
	var begin byte // first byte of the value
	if v.from < len(b) {
		begin = b[v.from]
	}
	flag, inQuotes := b[l] == '-', len(group(1)) > 0
	v.rest = v.rest && !inQuotes && begin != '{'
	switch says := group(2); {
	case bytes.HasSuffix(says, []byte(":")) && (begin == ':' || len(says) == 1 && l > 1 && b[l-1] == '/' && isAlnum(b[l-2])): // not a value: Token::new in code, and the tag of an image
		return nil
	case len(says) > 0:
		if flag && h.kind == pass {
			secret = sure
		}
		if (h.text == "secret" || h.kind == header) && bytes.Contains(says, []byte("alue")) { // the value may be the name of a Secret
			secret = perhaps
		}
	case len(group(3)) > 0:
		if !inQuotes {
			return nil
		}
		v.from -= len(bytes.TrimLeft(group(3), ", \t"))
		if inQuotes = false; h.kind != header || b[v.from] != '\'' { // a comma is uncertain, except in 'cookie', 'x'
			secret = perhaps
		}
	case flag && !inQuotes:
		if secret = sure; begin == '-' {
			return nil
		}
	default:
		if secret == sure && h.kind != header && (!inQuotes || bytes.IndexByte(group(4), '|') >= 0) && bytes.IndexByte([]byte("([{<"), begin) < 0 {
			return v.inSentence(string(bytes.TrimSpace(group(4))), h.text == "passw" || bytes.IndexByte(b[l:r], '_') >= 0, h.kind == key)
		}
		return nil
	}
	if near := v; secret == perhaps {
		// Check only the beginning of an uncertain value, because it may be checked many times.
		near.b = b[:min(len(b), v.from+reach/16)]
		found := near.spans(false)
		if len(found) == 0 {
			return nil
		}
		if text := string(b[found[0].from:found[0].to]); !plausible(text) && !(inQuotes && found[0].from > v.from && !wordsOnly.MatchString(text)) {
			return nil
		}
	}
	found := v.spans(secret == sure)
	if len(found) == 0 {
		return nil
	}
	text := v.text(found)
	switch {
	case reference.Match(text), h.kind == key && path.Match(text), h.text == "secret" && namespaced.Match(text):
		return nil
	case string(group(2)) == ": " && !v.rest && l > 1 && b[l-1] == ' ' && isLower(rune(b[l-2])) && complaint.Match(b[v.from:min(len(b), v.from+longestName)]): // as in "failed to fetch token: unexpected end of input"
		return nil
	}
	return found
}

// inSentence returns the position of a value in a sentence, such as "password is x" or "with secret 'x'". It
// returns nil for the name of an object, as in a message of Kubernetes: secret "x" not found.
func (v value) inSentence(said string, names, key bool) []span {
	found := v.spans(false)
	if len(found) == 0 || reference.Match(v.text(found)) {
		return nil
	}
	text, rest := string(v.text(found)), v.b[found[0].to:]
	quoted, words := found[0].from > v.from, said == "" || isLower(rune(said[0]))
	if !quoted {
		text = strings.TrimRight(text, ".:!?")
	}
	switch object := objectName.MatchString(text); {
	case object && strings.ContainsAny(text, "-./") && (quoted || !words), object && quoted && words && len(rest) > 1 && rest[1] != '\n':
		return nil
	case quoted && words, (said != "" || names && !key) && plausible(text), random(text) && !key:
		return found
	}
	return nil
}

var (
	// reference matches a reference to a variable, such as $NAME, ${NAME} or $(NAME).
	reference = regexp.MustCompile(`^\$(?:[A-Z][A-Z0-9_]*|\{[A-Z][A-Z0-9_]*\}|\([A-Z][A-Z0-9_]*\))$`)
	// objectName matches names of Kubernetes objects, and path matches file names.
	objectName, path = regexp.MustCompile(`^[a-z0-9][a-z0-9./-]*$`), regexp.MustCompile(`^\.{0,2}/[\w.-]+(?:/[\w.-]+)*$`)
	// namespaced matches NAMESPACE/NAME of an object, and complaint the beginning of an error message about
	// a secret.
	namespaced, complaint = regexp.MustCompile(`^[a-z][a-z0-9-]*/[a-z0-9][a-z0-9.-]*$`), regexp.MustCompile(`^[a-z]+ ["a-z]`)
	// wordsOnly matches plain words. They are not masked if it is uncertain whether the name is secret.
	wordsOnly = regexp.MustCompile(`^[A-Za-z]*(?:[ _./-][A-Za-z]+)*$`)
	// measure matches a number with a unit, a version, a date, a digest, a file or a URL.
	measure = regexp.MustCompile(`^(?:v?\d+(?:[.:]\d+)*(?:[A-Za-z%]{1,5}\d*)*|0x[0-9a-fA-F]+|\d{4}-\d\d-\d\d.*|sha\d+:.*|\.{0,2}/.*|[a-z]+://[^@]*)$`)
	// mixed matches a text with letters and also digits or signs that passwords use; many matches a long sequence
	// of digits or of letters.
	mixed, many = regexp.MustCompile(`[A-Za-z].*[\d!@#$%^&*~+]|[\d!@#$%^&*~+].*[A-Za-z]`), regexp.MustCompile(`^(?:\d{8,}|[a-z]{20,})$`)
	// word matches a text that may be random. camel matches words in camel case, which are not random. runs
	// matches a sequence of lower-case letters, of upper-case letters or of digits.
	camel      = regexp.MustCompile(`^(?:[A-Z][a-z]{2,}|[A-Z]{2,}|[a-z]+|\d{1,2})+$`)
	word, runs = regexp.MustCompile(`^[0-9A-Za-z!@#%^&*~+_=-][0-9A-Za-z!@#%^&*~+/_=-]{9,}$`), regexp.MustCompile(`[0-9]+|[A-Z]+|[a-z]+`)
)

// plausible reports whether a text looks like a password.
func plausible(s string) bool {
	return many.MatchString(s) || len(s) >= 6 && mixed.MatchString(s) && !measure.MatchString(s)
}

// certificate is the beginning of a PEM certificate in base64.
const certificate = "LS0tLS1CRUdJTiBDRV"

// random reports whether the whole text looks random: it often changes between lower case, upper case and digits.
func random(s string) bool {
	return word.MatchString(s) && !camel.MatchString(s) && !strings.HasPrefix(s, certificate) && strings.ContainsAny(s, "0123456789") && strings.ContainsFunc(s, isLower) && strings.ToLower(s) != s &&
		5*len(runs.FindAllString(s, -1)) >= 2*len(s)
}

var (
	// port matches the port at the end of the host in a URL.
	port = regexp.MustCompile(`:\d{0,5}$`)
	// driver and address match the text after user and password in an address without a scheme, such as @tcp( or
	// @host:5432.
	driver, address = regexp.MustCompile(`^@(?:tcp|udp|unix)?\(`), regexp.MustCompile(`^@(?:[A-Za-z][\w.-]*(?::\d{2,5}\b|/\w)|\d+\.\d+\.\d+\.\d+)`)
)

// userinfo returns the position of the user and password before the "@" at i in a URL, or of the password in
// "user:password@host"; nil if there is none.
func userinfo(b []byte, i int) []span {
	from := max(0, i-reach/8)
	from += 1 + bytes.LastIndexAny(b[from:i], " \t\r\n\"'<>`")
	scheme := bytes.LastIndex(b[from:i], []byte("://"))
	if scheme >= 0 {
		from += scheme + 3
	}
	if from >= i {
		return nil
	}
	user, after, ok := bytes.Cut(b[from:i], []byte("/"))
	// The text before the "@" is a host with a port, and the "@" belongs to the path.
	if scheme >= 0 && ok && (bytes.IndexByte(user, ':') < 0 || bytes.IndexByte(user, '@') >= 0 || user[0] == '[' || port.Match(user) || len(after) == 0) {
		return nil
	}
	if scheme < 0 {
		name, password, _ := bytes.Cut(b[from:i], []byte(":"))
		name = name[1+bytes.LastIndexAny(name, "=,;([{"):]
		host := b[i:min(len(b), i+longestName)]
		if from = i - len(password); from == i || len(name) == 0 || run(name, isName) < len(name) || !driver.Match(host) && !(address.Match(host) && plausible(string(password))) {
			return nil
		}
	}
	return []span{{from, i}}
}
