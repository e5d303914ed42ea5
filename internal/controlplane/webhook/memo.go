package webhook

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"maps"
	"slices"
	"sync"
	"time"

	"outrider.dev/internal/pod/inject"
)

// Replicas of one workload come to admission as the same bytes, but for one name: the
// volume of their token is called kube-api-access- and five characters of chance
// (kubernetes plugin/pkg/admission/serviceaccount), for their own names are made after
// admission. So an answer is remembered by the digest of all that it follows from, with
// that name blotted out, and given again with the name put in. Injection looks at no
// volume's name but its own, which is what makes this right; again_test.go holds it to
// that.
//
// Pods of a StatefulSet, a DaemonSet and an indexed Job differ in more: their names are
// made before, and their numbers, claims and nodes are written into them. Nothing in an
// answer depends on these ([inject.Unread]): they are blotted out, and nothing is put in.

// token is the name's beginning, and tokenLength how long its end is.
const (
	tokenPrefix = "kube-api-access-"
	tokenLength = 5
)

// blot stands where the end was. It is in no pod, since names have no capitals.
const blot = "BLOTT"

// A question is a digest of what an answer follows from, besides the options.
type question struct {
	sum   [sha256.Size]byte
	token []byte // the end of the name; empty: there is none
	known bool   // it can be remembered
}

// ask makes the digest. An object in which two such names are, or the blot itself, is
// asked about anew each time.
func ask(object []byte, path string, ns inject.Namespace, unread *paths) question {
	h := sha256.New()
	part := func(s string) { write(h, []byte(s)) }
	part(path)
	part(ns.Name)
	for _, m := range []map[string]string{ns.Labels, ns.Annotations} {
		part(map[bool]string{true: "unknown", false: "known"}[m == nil])
		for _, key := range slices.Sorted(maps.Keys(m)) {
			part(key)
			part(m[key])
		}
		part("")
	}
	var q question
	if bytes.Contains(object, []byte(blot)) {
		return q
	}
	object, err := blotted(object, unread)
	if err != nil {
		return q // no JSON, and so no pod
	}
	binary.Write(h, binary.LittleEndian, uint64(len(object)))
	for {
		i := bytes.Index(object, []byte(tokenPrefix))
		end := i + len(tokenPrefix) + tokenLength
		if i < 0 || end > len(object) {
			break
		}
		token := object[i+len(tokenPrefix) : end]
		if q.token == nil {
			q.token = token
		}
		if !bytes.Equal(q.token, token) || !lower(token) {
			return question{}
		}
		h.Write(object[:i+len(tokenPrefix)])
		h.Write([]byte(blot))
		object = object[end:]
	}
	h.Write(object)
	h.Sum(q.sum[:0])
	q.known = true
	return q
}

func write(h hash.Hash, s []byte) {
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(s)))
	h.Write(length[:])
	h.Write(s)
}

func lower(s []byte) bool {
	return !bytes.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

// A memo is what was answered, up to a number of bytes; beyond it everything is forgotten,
// since what is asked for in a burst comes back at once.
type memo struct {
	most int

	mu      sync.Mutex
	size    int
	answers map[[sha256.Size]byte]remembered
}

type remembered struct {
	response response
	code     inject.Code
}

func newMemo(most int) *memo {
	return &memo{most: most, answers: map[[sha256.Size]byte]remembered{}}
}

// answer is what was answered to the same question.
func (m *memo) answer(q question) (response, inject.Code, bool) {
	if !q.known {
		return response{}, "", false
	}
	m.mu.Lock()
	r, ok := m.answers[q.sum]
	m.mu.Unlock()
	if ok && r.response.Patch != nil {
		r.response.Patch = bytes.ReplaceAll(r.response.Patch, []byte(tokenPrefix+blot), slices.Concat([]byte(tokenPrefix), q.token))
	}
	return r.response, r.code, ok && r.response.counts()
}

// counts says whether an answer still does: one by an image's name goes with the name.
func (r response) counts() bool { return r.Until.IsZero() || time.Now().Before(r.Until) }

// remember keeps an answer, and returns it. What is refused is not kept: its author is
// about to change it, and its message may have the name in it, as a warning may.
func (m *memo) remember(q question, r response, code inject.Code) response {
	if !q.known || m.most < 0 || !r.Allowed || bytes.Contains(r.Patch, []byte(blot)) {
		return r
	}
	out := r
	if q.token != nil {
		for _, w := range r.Warnings {
			if bytes.Contains([]byte(w), q.token) {
				return r
			}
		}
		if name := slices.Concat([]byte(tokenPrefix), q.token); bytes.Contains(r.Patch, name) {
			r.Patch = bytes.ReplaceAll(r.Patch, name, []byte(tokenPrefix+blot))
		}
	}
	if !bytes.Contains(r.Patch, []byte(blot)) { // as nearly all: what the pod had is not written anew
		r.Encoded, r.Patch = base64.StdEncoding.AppendEncode(nil, r.Patch), nil
		out = r
	}
	size := len(r.Patch) + len(r.Encoded) + entryCost
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.size+size > m.most {
		m.size = 0
		clear(m.answers)
	}
	if size <= m.most {
		m.size += size
		m.answers[q.sum] = remembered{r, code}
	}
	return out
}

// entryCost is about what an entry holds besides its patch.
const entryCost = 512
