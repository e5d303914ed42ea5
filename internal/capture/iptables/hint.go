package iptables

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"outrider.dev/internal/capture"
)

// A hint is what a rule of iptables cannot hold of the model's rule, though it
// makes no difference to any packet. It stands in brackets behind the reason, in
// the rule's comment, so that a rule set is read back as it was written:
//
//	to an excluded range (-x) [#12]                 the 13th rule of its chain, and of one family
//	within the pod [order=1,0,2]                    the order of the conditions
//	outbound connection to the proxy (-i) [daddr]   a condition that all addresses meet
type hint struct {
	index   int // of a rule that only one family has; -1 is none
	any     []capture.Key
	order   []int // for each condition of the model's rule, where it is in the canonical list
	escaped bool  // the reason itself ends like a hint
}

// canonical is the order of conditions that goes without saying: the one most
// rules of Build have.
var canonical = []capture.Key{
	capture.Protocol, capture.SYN, capture.InInterface, capture.OutInterface,
	capture.Mark, capture.ConnMark, capture.Original, capture.SourcePort, capture.DestPort,
	capture.Source, capture.Destination, capture.Invalid, capture.Socket, capture.UID, capture.GID, capture.InSet,
}

// canonicalOrder sorts by key; conditions on the same key keep their order.
func canonicalOrder(match []capture.Match) []capture.Match {
	out := make([]capture.Match, 0, len(match))
	for _, key := range canonical {
		for _, m := range match {
			if m.Key == key {
				out = append(out, m)
			}
		}
	}
	return out
}

// spoken is the conditions that a list in canonical order stands for without a
// hint: who looks at TCP's flags need not say TCP.
func spoken(list []capture.Match) []capture.Match {
	if !slices.ContainsFunc(list, func(m capture.Match) bool { return m.Key == capture.SYN }) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(m capture.Match) bool {
		return m == capture.Match{Key: capture.Protocol, Num: capture.TCP}
	})
}

// hintFor is the hint of a rule. complete is its conditions with those implied.
func hintFor(r capture.Rule, complete []capture.Match, index int) hint {
	h := hint{index: index, escaped: strings.HasSuffix(r.Reason, "]")}
	for _, m := range r.Match {
		if everyAddress(m) {
			h.any = append(h.any, m.Key)
		}
	}
	list := canonicalOrder(complete)
	if slices.Equal(spoken(list), r.Match) {
		return h
	}
	used := make([]bool, len(list))
	for _, m := range r.Match {
		for i := range list {
			if list[i] == m && !used[i] {
				h.order, used[i] = append(h.order, i), true
				break
			}
		}
	}
	return h
}

// apply returns the model's conditions, given those that were read.
func (h hint) apply(match []capture.Match, family capture.Families) ([]capture.Match, error) {
	for _, key := range h.any {
		match = append(match, capture.Match{Key: key, Prefix: everywhere(family)})
	}
	list := canonicalOrder(match)
	if h.order == nil {
		return spoken(list), nil
	}
	out := make([]capture.Match, 0, len(h.order))
	seen := map[int]bool{}
	for _, i := range h.order {
		if i >= len(list) || seen[i] {
			return nil, fmt.Errorf("the note on its order does not fit its %d conditions", len(list))
		}
		seen[i] = true
		out = append(out, list[i])
	}
	// Only what is implied may be left out.
	for i, m := range list {
		if !seen[i] && m.Key != capture.Protocol {
			return nil, errors.New("the note on its order leaves a condition out")
		}
	}
	return out, nil
}

// String is the hint with its brackets and the space before them, or nothing.
func (h hint) String() string {
	var fields []string
	if h.index >= 0 {
		fields = append(fields, fmt.Sprintf("#%d", h.index))
	}
	for _, k := range h.any {
		fields = append(fields, string(k))
	}
	if h.order != nil {
		order := fmt.Sprint(h.order) // [1 0 2]
		fields = append(fields, "order="+strings.ReplaceAll(strings.Trim(order, "[]"), " ", ","))
	}
	if len(fields) == 0 && !h.escaped {
		return ""
	}
	return " [" + strings.Join(fields, " ") + "]"
}

// cutHint takes a comment apart.
func cutHint(comment string) (reason string, h hint, err error) {
	h.index = -1
	body, ok := strings.CutSuffix(comment, "]")
	if !ok {
		return comment, h, nil
	}
	i := strings.LastIndex(body, " [")
	if i < 0 {
		return "", h, fmt.Errorf("comment %q: no such note of ours", comment)
	}
	for _, field := range strings.Fields(body[i+2:]) {
		if err := h.parseField(field); err != nil {
			return "", h, fmt.Errorf("comment %q: no such note of ours: %w", comment, err)
		}
	}
	return body[:i], h, nil
}

func (h *hint) parseField(field string) error {
	if n, ok := strings.CutPrefix(field, "#"); ok {
		i, err := strconv.ParseUint(n, 10, 31)
		h.index = int(i)
		return err
	}
	if list, ok := strings.CutPrefix(field, "order="); ok {
		h.order = []int{}
		for n := range strings.SplitSeq(list, ",") {
			i, err := strconv.ParseUint(n, 10, 31)
			if err != nil {
				return err
			}
			h.order = append(h.order, int(i))
		}
		return nil
	}
	if key := capture.Key(field); key == capture.Source || key == capture.Destination {
		h.any = append(h.any, key)
		return nil
	}
	return fmt.Errorf("%q", field)
}
