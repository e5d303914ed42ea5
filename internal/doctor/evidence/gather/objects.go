package gather

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/base/manifest/decodeerror"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/decoded"
	"outrider.dev/internal/doctor/evidence/partial"
)

// Limits of a file with objects. They are needed because decoding may take 100 times as much memory as the text.
const (
	maxObject     = 4 << 20 // bytes of one object; the limit of an API server is 1.5 MiB
	maxParts      = 1 << 16 // objects in one file
	maxContainers = 1000    // containers of a pod
	maxCommas     = 1 << 22 // commas in a JSON file
	maxNotes      = 100_000 // notes about unused input

	// Approximate sizes in memory, in bytes.
	objectSize, containerSize, partSize = 1024, 1024, 256
)

// parse adds the objects of a file in YAML or JSON, which may contain several documents and lists. A document that
// cannot be decoded is noted as unused. In YAML the other documents are still read; in JSON, those before it.
func (b *bundle) parse(folder, file string, data []byte) {
	if trimmed := bytes.TrimLeft(data, " \t\r\n\ufeff"); len(trimmed) > 0 && trimmed[0] == '{' {
		if bytes.Count(trimmed, []byte(",")) > maxCommas {
			b.unused(evidence.Source{Kind: evidence.FromPod, File: file}, "it has more than %d values: give those of one namespace, or of one pod", maxCommas)
			return
		}
		d := json.NewDecoder(bytes.NewReader(trimmed))
		from, before, at := evidence.Source{Kind: evidence.FromPod, File: file, Line: 1}, len(data)-len(trimmed), 0
		to := func(next int) { // counts the lines before next
			from.Line += bytes.Count(data[at:max(at, next)], []byte("\n"))
			at = max(at, next)
		}
		for len(b.left) <= maxNotes {
			var raw json.RawMessage
			err := d.Decode(&raw)
			end := before + int(d.InputOffset())
			switch {
			case err == io.EOF:
				return
			case err != nil:
				to(end)
				b.unused(from, "this is not JSON from here on: %s; want objects as kubectl get -o json prints them", decodeerror.Reason(err))
				return
			}
			to(end - len(raw))
			b.gaps = false
			b.object(folder, from, raw, "", "")
		}
		return
	}
	for s := range manifest.Split(data) {
		if s.Empty() {
			continue
		}
		if len(b.left) > maxNotes {
			return
		}
		from := evidence.Source{Kind: evidence.FromPod, File: file, Line: s.Line}
		b.gaps = false
		list, items := cutItems(s.Body)
		raw := b.json(from, list)
		if raw == nil {
			continue
		}
		apiVersion, kind := b.object(folder, from, raw, "", "")
		for _, item := range items {
			var one []json.RawMessage // a list with one item
			if raw := b.json(from, item); raw != nil && json.Unmarshal(raw, &one) == nil {
				for _, raw := range one {
					b.object(folder, from, raw, apiVersion, kind)
				}
			}
		}
	}
}

// json converts YAML to JSON. It returns nil if the text is not YAML, or too large.
func (b *bundle) json(from evidence.Source, text []byte) []byte {
	if len(text) > maxObject {
		b.unused(from, "an object has more than %d MiB, as none of an API server has; a list is read as kubectl prints it", maxObject>>20)
		return nil
	}
	raw, err := manifest.JSON(text)
	if err != nil {
		if mended := b.mended(text); mended != nil {
			return mended
		}
	}
	if err != nil {
		b.unused(from, "this is not YAML: %s; want objects as kubectl get -o yaml prints them", decodeerror.Syntax(text, err))
		return nil
	}
	return raw
}

// mended converts YAML in which lines stand for others that a person left out, or that was cut off within a line. It
// returns nil if it is not YAML without these either.
func (b *bundle) mended(text []byte) []byte {
	rest, are := partial.WithoutGaps(text)
	for range 3 {
		if raw, err := manifest.JSON(rest); err == nil && are {
			b.gaps = true
			return raw
		}
		end := bytes.LastIndexByte(bytes.TrimRight(rest, "\r\n"), '\n')
		if end < 0 || !bytes.Contains(text, []byte("kind: Pod")) && !bytes.Contains(text, []byte("ontainerStatuses:")) {
			break
		}
		rest, are = rest[:end+1], true
	}
	return nil
}

var firstItem = regexp.MustCompile(`(?m)^items:[ \t]*\r?\n( *)- `)

// cutItems removes the items of a large YAML list, in the form that kubectl prints, and returns them separately, so
// that each item can be decoded by itself. It does not change small lists.
func cutItems(text []byte) (list []byte, items [][]byte) {
	m := firstItem.FindSubmatchIndex(text)
	if len(text) <= maxObject || m == nil {
		return text, nil
	}
	begin, at, dash := m[2], m[2], append(bytes.Clone(text[m[2]:m[3]]), "- "...)
	for line := range bytes.Lines(text[begin:]) {
		ends := !bytes.ContainsAny(line[:1], " -#\r\n")
		if at > begin && (ends || bytes.HasPrefix(line, dash)) {
			items, begin = append(items, text[begin:at]), at
		}
		if ends {
			break
		}
		at += len(line)
	}
	if at > begin {
		items = append(items, text[begin:at])
	}
	return slices.Concat(text[:m[0]], []byte("items: []\n"), text[at:]), items
}

// object adds one object, or the objects of a list. apiVersion and kind are the defaults for an object that does not
// have them. For a list, it returns the defaults for the list's items. Fields that this version of the API does not
// define are ignored.
func (b *bundle) object(folder string, from evidence.Source, raw []byte, apiVersion, kind string) (ofItems, kindOfItems string) {
	var head struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
		Process    *time.Time        `json:"process_started"`
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' {
		if len(raw) == 0 || raw[0] != '[' || !b.addPart(folder, from, raw) {
			b.unused(from, "this is no Kubernetes object")
		}
		return "", ""
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		b.mismatch(from, "object", raw, err)
		return "", ""
	}
	head.Kind, head.APIVersion = cmp.Or(head.Kind, kind), cmp.Or(head.APIVersion, apiVersion)
	of, isList := strings.CutSuffix(head.Kind, "List")
	switch {
	case isList:
		if of == "" {
			head.APIVersion = ""
		}
		if b.depth++; b.depth > 3 {
			b.unused(from, "it has lists in lists in lists")
			head.Items = nil
		}
		for _, item := range head.Items {
			if len(b.left) > maxNotes {
				break
			}
			b.object(folder, from, item, head.APIVersion, of)
		}
		b.depth--
		return head.APIVersion, of
	case head.Kind == "":
		if head.Process == nil {
			if !b.addPart(folder, from, raw) {
				b.unused(from, "kind: missing: this is no Kubernetes object, nor what GET /startup of Outrider's agent answers")
			}
		} else if b.hold(from, raw) {
			from.Kind = evidence.FromJournal
			b.addJournal(folder, from, raw)
		}
	case configs[head.Kind] && (head.APIVersion == "v1" || head.APIVersion == ""):
		b.addConfig(head.Kind, from, raw)
		b.use(from)
		b.other = true
	case head.Kind != "Pod" && head.Kind != "Event" && !evidence.OwnsPods[head.Kind]:
		b.other = true
		if kinds := b.kinds[from.File]; len(kinds) < mostKinds && !slices.Contains(kinds, head.Kind) {
			b.kinds[from.File] = append(kinds, head.Kind)
		}
	case !b.hold(from, raw):
	case head.Kind == "Pod":
		b.addPod(folder, from, raw)
	case head.Kind == "Event":
		from.Kind = evidence.FromEvent
		b.addEvent(from, raw, strings.HasPrefix(head.APIVersion, "events.k8s.io/"))
	default:
		var o metav1.PartialObjectMetadata
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil {
			b.mismatch(from, head.Kind, raw, err)
			break
		}
		b.use(from)
		b.owners[evidence.About(head.Kind, o.Namespace, o.Name)] = evidence.Owner{Kind: head.Kind, Name: o.Name, Object: &o}
		b.addCreator(head.Kind, o.Namespace, o.Name, from, raw)
	}
	return "", ""
}

// hold adds the memory of an object to the sum, and returns false if a limit is exceeded.
func (b *bundle) hold(from evidence.Source, raw []byte) bool {
	parts := bytes.Count(raw, []byte("{"))
	if len(raw) > maxObject || parts > maxParts {
		b.unused(from, "an object has more than %d MiB or %d parts, as none of an API server has", maxObject>>20, maxParts)
		return false
	}
	before := b.held
	b.held += int64(objectSize + len(raw) + partSize*parts)
	if b.held > b.most && before <= b.most {
		b.unused(from, "this object and what comes after it is left out, because all take more than %d MiB of memory: give those of one namespace", b.most>>20)
	}
	return b.held <= b.most
}

// mismatch notes that an object could not be decoded, with the field whose value has the wrong type.
func (b *bundle) mismatch(from evidence.Source, what string, raw []byte, err error) {
	if m := decodeerror.Find(raw, err); m != nil {
		b.unused(from, "%s: %s: %v", what, cmp.Or(m.Field, "(the whole)"), m)
		return
	}
	b.unused(from, "%s: %s", what, decodeerror.Reason(err))
}

// phases of a pod.
var phases = map[corev1.PodPhase]bool{corev1.PodPending: true, corev1.PodRunning: true, corev1.PodSucceeded: true, corev1.PodFailed: true, corev1.PodUnknown: true}

func (b *bundle) addPod(folder string, from evidence.Source, raw []byte) {
	pod, err := b.decodePod(raw)
	if err != nil {
		b.mismatch(from, "Pod", raw, err)
		return
	}
	status := &pod.Status
	switch {
	case len(pod.Spec.Containers)+len(status.ContainerStatuses)+len(status.InitContainerStatuses) == 0 && status.Reason == "" && !phases[status.Phase]:
		b.unused(from, "Pod %s: it has neither containers nor a status", pod.Name)
		return
	case max(len(pod.Spec.InitContainers)+len(pod.Spec.Containers)+len(pod.Spec.EphemeralContainers), len(status.ContainerStatuses)+len(status.InitContainerStatuses)) > maxContainers:
		b.unused(from, "Pod %s: it has more than %d containers", pod.Name, maxContainers)
		return
	case pod.Name == "" || evidence.LeftOut(pod.Name):
		b.use(from)
		b.parts = append(b.parts, part{folder, from, pod, b.gaps, b.of, b.words})
		return
	}
	p := partial.Pod(pod, from, b.gaps)
	b.held += int64(containerSize * len(p.Containers))
	b.pod(folder, p)
}

// pod adds a pod. If the same pod is read twice, the newer object and both folders are kept.
func (b *bundle) pod(folder string, p *evidence.Pod) {
	b.use(p.Source)
	key := p.Name() + " " + string(p.Object.UID)
	i, twice := b.at[key]
	if !twice {
		b.at[key] = len(b.pods)
		b.pods = append(b.pods, placed{Pod: p, folders: []string{folder}})
		return
	}
	if decoded.Revision(p) > decoded.Revision(b.pods[i].Pod) {
		b.pods[i].Pod = p
	}
	b.pods[i].folders = append(b.pods[i].folders, folder)
}

func (b *bundle) addEvent(from evidence.Source, raw []byte, newer bool) {
	var e corev1.Event
	var err error
	if newer {
		var n eventsv1.Event
		if err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &n); err == nil {
			e = decoded.Older(n)
		}
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &e)
	}
	if err != nil {
		b.mismatch(from, "Event", raw, err)
		return
	}
	b.oneEvent(from, &e)
}

func (b *bundle) oneEvent(from evidence.Source, e *corev1.Event) {
	b.events = append(b.events, podEvent{Aged: partial.Aged{Event: decoded.Event(from, e)}, uid: string(e.InvolvedObject.UID), id: string(e.UID)})
}

func (b *bundle) addJournal(folder string, from evidence.Source, raw []byte) {
	j, err := decoded.Journal(raw, from)
	if err != nil {
		b.mismatch(from, "startup journal", raw, err)
		return
	}
	b.journals = append(b.journals, placedJournal{j, folder})
}
