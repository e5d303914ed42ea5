package dns

import "sync/atomic"

// Counts are what a server did since it began.
type Counts struct {
	Questions  uint64 // all
	Mesh       uint64 // answered as names of the mesh
	Cached     uint64 // looked up without asking the control plane
	Stale      uint64 // answered with an old answer, because the control plane did not answer
	Asked      uint64 // questions to the control plane
	Unanswered uint64 // of these, without an answer
	Forwarded  uint64 // passed on to name servers
	Failed     uint64 // of these, without an answer
	Refused    uint64 // answered with a failure, because too many were at work
	Malformed  uint64 // no question
	Looped     uint64 // the proxy's own questions, which came back to it
	Names      uint64 // that are remembered now
}

// counters are Counts that many write.
type counters struct {
	questions, mesh, cached, stale, asked, unanswered, forwarded, failed, refused, malformed, looped atomic.Uint64
}

// Counts returns the counts of this moment.
func (s *Server) Counts() Counts {
	c := &s.counts
	out := Counts{
		Questions: c.questions.Load(), Mesh: c.mesh.Load(), Cached: c.cached.Load(), Stale: c.stale.Load(),
		Asked: c.asked.Load(), Unanswered: c.unanswered.Load(), Forwarded: c.forwarded.Load(), Failed: c.failed.Load(),
		Refused: c.refused.Load(), Malformed: c.malformed.Load(), Looped: c.looped.Load(),
	}
	if s.cache != nil {
		out.Names = uint64(s.cache.len())
	}
	return out
}
